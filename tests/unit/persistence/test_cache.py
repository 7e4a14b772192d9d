"""Memory holds what was committed last, and nothing older."""

from dataclasses import replace

from tests.unit.persistence.making import make_job, make_task
from trackside.domain.phase import Phase
from trackside.persistence.cache import JobCache


def test_unfinished_jobs_stay_however_many_there_are() -> None:
    cache = JobCache(finished_weight_max=2)
    jobs = [make_job(i) for i in range(10)]
    cache.publish((job.id, job) for job in jobs)
    assert cache.open_jobs() == tuple(jobs)
    assert [cache.get(job.id) for job in jobs] == jobs


def test_the_finished_jobs_used_least_go_first() -> None:
    cache = JobCache(finished_weight_max=3)
    jobs = [make_job(i, phase=Phase.FAILED) for i in range(3)]
    cache.publish((job.id, job) for job in jobs)
    assert cache.get(jobs[0].id) == jobs[0]
    new = make_job(9, phase=Phase.STOPPED)
    cache.publish([(new.id, new)])
    assert [cache.get(job.id) for job in (*jobs, new)] == [jobs[0], None, jobs[2], new]


def test_a_job_weighs_as_much_as_its_tasks() -> None:
    cache = JobCache(finished_weight_max=3)
    light = make_job(1, phase=Phase.FAILED)
    heavy = make_job(2, phase=Phase.FAILED, tasks=(make_task(0), make_task(1)))
    cache.publish([(light.id, light), (heavy.id, heavy)])
    assert cache.get(light.id) is None
    assert cache.get(heavy.id) == heavy
    cache.publish([(heavy.id, replace(heavy, tasks=()))])
    cache.publish([(light.id, light)])
    assert cache.get(light.id) == light


def test_a_job_moves_with_its_phase() -> None:
    cache = JobCache()
    job = make_job()
    cache.publish([(job.id, job)])
    over = replace(job, phase=Phase.STOPPED)
    cache.publish([(job.id, over)])
    assert (cache.open_jobs(), cache.deleted_jobs(), cache.get(job.id)) == ((), (), over)
    deleted = replace(over, deleting=True)
    cache.publish([(job.id, deleted)])
    assert (cache.open_jobs(), cache.deleted_jobs(), cache.get(job.id)) == ((), (deleted,), deleted)
    cache.publish([(job.id, None)])
    assert (cache.deleted_jobs(), cache.get(job.id)) == ((), None)


def test_what_was_read_before_a_commit_is_not_remembered() -> None:
    cache = JobCache()
    job = make_job(phase=Phase.FAILED)
    epoch = cache.epoch
    cache.publish([(job.id, None)])  # deleted while somebody was reading it
    cache.remember([job], epoch)
    assert cache.get(job.id) is None
    cache.remember([job], cache.epoch)
    assert cache.get(job.id) == job


def test_an_unfinished_job_that_was_read_is_not_remembered() -> None:
    cache = JobCache()
    job = make_job()
    cache.remember([job], cache.epoch)
    assert cache.open_jobs() == ()


def test_a_reset_forgets_everything_else() -> None:
    cache = JobCache()
    old, done, new = make_job(1), make_job(2, phase=Phase.FAILED), make_job(3)
    cache.publish([(old.id, old), (done.id, done)])
    cache.reset([new])
    assert cache.open_jobs() == (new,)
    assert cache.get(old.id) is None
    assert cache.get(done.id) is None
