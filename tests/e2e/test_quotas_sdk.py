"""How many jobs somebody may have, through the official SDK."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
from huaweicloudsdkmodelarts.v1 import (
    DeleteTrainingJobRequest,
    ModifyTrainingQuotaItem,
    ModifyTrainingQuotaRequest,
    ModifyTrainingQuotasRequest,
    ShowTrainingQuotasRequest,
)

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, submit, wait_until
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e


def show(client: Any, **asked: str) -> tuple[str, int, int]:
    (item,) = client.show_training_quotas(ShowTrainingQuotasRequest(**asked)).quotas
    return item.resource, item.quota, item.used


def modify(client: Any, user: str, quota: int, resource: str = "job-num") -> Any:
    item = ModifyTrainingQuotaItem(resource=resource, quota=quota)
    body = ModifyTrainingQuotaRequest(user_id=user, quotas=[item])
    return client.modify_training_quotas(ModifyTrainingQuotasRequest(body=body))


def refused(call: Any, *args: Any, **named: Any) -> ClientRequestException:
    with pytest.raises(ClientRequestException) as caught:
        call(*args, **named)
    return caught.value


def test_a_quota_limits_how_many_jobs_there_are(own_server: LiveServer) -> None:
    live = own_server.start()
    client = client_of(live)
    assert show(client) == ("job-num", -1, 0)
    first = submit(client, "true")
    answer = modify(client, "admin", 2)
    assert (answer.user_id, answer.quotas[0].quota, answer.quotas[0].used) == ("admin", 2, 1)
    second = submit(client, "true")
    error = refused(submit, client, "true")
    assert error.status_code == 403
    assert "the user admin may have 2 jobs" in error.error_msg
    assert show(client, user_id="admin", resource="job-num") == ("job-num", 2, 2)
    for job in (first, second):
        wait_until(client, job, "Completed")
    client.delete_training_job(DeleteTrainingJobRequest(training_job_id=first))
    third = eventually(lambda: submit(client, "true") if show(client)[2] < 2 else None, "no place comes free")
    wait_until(client, third, "Completed")

    live.kill()
    client = client_of(own_server.start())
    assert show(client) == ("job-num", 2, 2), "it outlives the server"
    modify(client, "admin", -1)
    modify(client, live.project_id, 3)
    with ThreadPoolExecutor(6) as pool:  # at the same moment, for one place
        outcomes = [pool.submit(submit, client, "true") for _ in range(6)]
    errors = [error for one in outcomes if (error := one.exception())]
    assert len(errors) == 5
    assert all("the project may have 3 jobs" in str(error) for error in errors)
    assert show(client, user_id=live.project_id) == ("job-num", 3, 3)
    assert show(client) == ("job-num", -1, 3)
    modify(client, "*", 7)
    assert show(client) == ("job-num", 7, 3), "who has none of their own has everybody's"


def test_what_is_no_quota_is_refused(server: LiveServer) -> None:
    client = client_of(server)
    assert refused(modify, client, "nobody-here", 5).status_code == 404
    assert "must be 1 or more" in refused(modify, client, "admin", 0).error_msg
    assert "from 1 to 2,147,483,647" in refused(modify, client, "admin", 2**31).error_msg
    assert "must be one of [job-num]" in refused(modify, client, "admin", 5, "visual-job-num").error_msg
    assert refused(show, client, resource="disk").status_code == 400
    assert refused(show, client, user_id="nobody-here").status_code == 404
    assert show(client)[1] == -1
