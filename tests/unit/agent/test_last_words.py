"""What the ends of real logs say: of Python, of torch's launchers, of gloo, NCCL, HCCL and shells."""

import subprocess
import sys

import pytest

from trackside.agent.last_words import (
    RECENT_LINES,
    collective_error,
    last_traceback,
    lines_of,
    no_room,
    shell_error,
)
from trackside.domain.evidence import TRACEBACK_CHARS_MAX

BOOM = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
  File "train.py", line 2, in main
    raise ValueError("boom")
ValueError: boom"""


def ran(code: str) -> list[str]:
    """Return what a real Python prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return lines_of(done.stderr)


def test_the_last_of_two_tracebacks_counts() -> None:
    older = BOOM.replace("boom", "got over")
    assert last_traceback(lines_of(f"start\n{older}\nepoch 1\n{BOOM}\n")) == BOOM


def test_of_chained_exceptions_the_last_counts() -> None:
    found = last_traceback(
        ran("try:\n  1 / 0\nexcept Exception as e:\n  raise RuntimeError('no data') from e")
    )
    assert found is not None
    assert found.endswith("\nRuntimeError: no data")
    assert "ZeroDivisionError" not in found


@pytest.mark.parametrize("prefix", ["[rank1]: ", "[1,2]<stderr>:", "3: "])
def test_what_a_launcher_puts_before_each_line_is_taken_off(prefix: str) -> None:
    log = "\n".join(prefix + line for line in BOOM.splitlines())
    assert last_traceback(lines_of(f"hello\n{log}\n[rank0]: still here\n")) == BOOM


def test_lines_of_other_processes_in_between_are_passed_over() -> None:
    lines = [f"[rank1]: {line}" for line in BOOM.splitlines()]
    lines.insert(3, "[rank0]: step 17")
    assert last_traceback(lines) == BOOM


def test_a_traceback_that_was_cut_off_does_not_hide_a_whole_one() -> None:
    cut = "\n".join(BOOM.splitlines()[:3])
    assert last_traceback(lines_of(f"{BOOM}\nlater\n{cut}")) == BOOM
    assert last_traceback(lines_of(cut)) is None
    assert last_traceback(lines_of("no words at all")) is None


def test_a_launcher_s_own_exception_says_less_than_that_of_its_process() -> None:
    name = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
    own = BOOM.replace("ValueError: boom", f"{name}:").replace("boom", "x")
    assert last_traceback(lines_of(f"[rank0]: {BOOM}".replace("\n", "\n[rank0]: ") + f"\n{own}\n")) == BOOM
    alone = last_traceback(lines_of(own))
    assert alone is not None
    assert alone.endswith(f"{name}:")


def test_a_program_that_python_cannot_read_has_its_place_told() -> None:
    found = last_traceback(ran("def"))
    assert found is not None
    assert found.startswith('  File "<string>", line 1')
    assert found.splitlines()[-1].startswith("SyntaxError: ")


def test_a_recursion_is_cut_to_its_end() -> None:
    frames = "".join(f'  File "deep_{i}.py", line {i}, in f\n    f()\n' for i in range(500))
    found = last_traceback(
        lines_of(f"Traceback (most recent call last):\n{frames}RecursionError: too deep\n")
    )
    assert found is not None
    assert len(found) <= TRACEBACK_CHARS_MAX
    assert found.startswith("Traceback (most recent call last):\n  [...]\n")
    assert found.endswith("in f\n    f()\nRecursionError: too deep")


def test_colours_are_no_words() -> None:
    assert last_traceback(lines_of(BOOM.replace("ValueError", "\x1b[1;35mValueError\x1b[0m"))) == BOOM


PEERS = [
    "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:8",
    "[E] gloo/transport/tcp/pair.cc:598] Read error [10.0.0.2]:4471: Connection reset by peer",
    "terminate called: gloo/transport/tcp/pair.cc:376] writev [::1]:19: Broken pipe",
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "[rank3]:[E1 ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8)",
    "host:12:40 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node-2<5>",
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote error",
    "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
    "[W socket.cpp:464] [c10d] The client socket has timed out after 60000ms",
    "EI0006: Getting socket times out. Reason: 1. The remote does not initiate a connect request.",
    "[ERROR] EI0002: The wait execution of the Notify register times out.",
    "An MPI communication peer process has unexpectedly disconnected.",
    "mpirun noticed that process rank 2 with PID 0 on node b exited on signal 9 (Killed).",
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
    "horovod.common.exceptions.HorovodInternalError: HorovodAllreduce has been shut down.",
]


@pytest.mark.parametrize("line", PEERS)
def test_a_lost_peer_is_recognised(line: str) -> None:
    assert collective_error(["step 3", f"  {line}", "bye"]) == line


@pytest.mark.parametrize(
    "line",
    [
        "BrokenPipeError: [Errno 32] Broken pipe",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "requests.exceptions.ConnectionError: Connection closed by peer",
        "torch.distributed.DistBackendError: NCCL error in: a.cpp:9, ncclInvalidUsage: Duplicate GPU",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "using the backend gloo",
    ],
)
def test_errors_of_other_libraries_are_no_lost_peers(line: str) -> None:
    assert collective_error([line]) is None


def test_a_peer_lost_long_ago_was_got_over() -> None:
    assert collective_error([PEERS[0], *["step"] * RECENT_LINES]) is None


@pytest.mark.parametrize(
    ("line", "in_shm"),
    [
        ("OSError: [Errno 28] No space left on device", False),
        ("dd: error writing '/dev/shm/x': No space left on device", True),
        ("RuntimeError: unable to write to file </torch_9_1>: No space left on device (28)", True),
        ("This might be caused by insufficient shared memory (shm).", True),
        ("dataloader's workers are out of shared memory. Please try to raise your limit.", True),
        ("OSError: [Errno 122] Disk quota exceeded: 'checkpoint.pt'", False),
    ],
)
def test_a_want_of_room_is_recognised(line: str, in_shm: bool) -> None:
    assert no_room(["", line, ""]) == (line, in_shm)
    assert no_room([line, *["step"] * 30]) is None
    assert no_room(["all is well"]) is None


@pytest.mark.parametrize(
    ("line", "code", "program"),
    [
        ("/bin/sh: 1: ./train.sh: not found", 127, "./train.sh"),
        ("/bin/sh: 1: ./train.sh: Permission denied", 126, "./train.sh"),
        ("bash: line 1: trian: command not found", 127, "trian"),
        ("run.sh: line 7: ./a: cannot execute: required file not found", 127, "./a"),
        ("sh: 1: exec: ./a: Exec format error", 126, "./a"),
        ("bash: ./a: /nope/python: bad interpreter: No such file or directory", 126, "./a"),
        ("python: can't open file '/w/train.py': [Errno 2] No such file or directory", 2, "/w/train.py"),
    ],
)
def test_what_a_shell_could_not_run_is_told(line: str, code: int, program: str) -> None:
    assert shell_error([line, ""], code) == (line, program, True)
    assert shell_error(["first", line], code) == (line, program, False)
    assert shell_error([line, "but it went on"], code) is None
    assert shell_error([line], 77) is None
    assert shell_error([], code) is None


def test_a_real_shell_s_words_are_recognised() -> None:
    done = subprocess.run(["/bin/sh", "-c", "./nothing"], capture_output=True, text=True, check=False)
    found = shell_error(lines_of(done.stderr), done.returncode)
    assert found is not None
    assert found.program == "./nothing"
