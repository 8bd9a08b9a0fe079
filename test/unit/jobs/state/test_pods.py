"""What an exit code means.

Which containers can never start, by the words that containerd, runc, crun and the kubelet have for it.
"""

from __future__ import annotations

import time

import pytest

from tfjob_controller.api.common.core import ContainerState, ContainerStatus, Pod, PodMeta, Terminated, Waiting
from tfjob_controller.jobs.state.podreasons import (
    error_of,
    exit_text,
    is_permanent_error,
    is_retryable_termination_state,
    start_failure,
    why_never_started,
)
from tfjob_controller.jobs.state.pods import deletion_request_time
from tfjob_controller.util.timestamps import parse_time


@pytest.mark.parametrize(
    ("exit_code", "reason", "retryable", "permanent"),
    [
        pytest.param(0, "Completed", False, False, id="0 is success"),
        pytest.param(1, "Error", False, True, id="1 is permanent"),
        pytest.param(127, "Error", False, True, id="127 is the last permanent one"),
        pytest.param(128, "Error", True, False, id="128 is the first retryable one"),
        pytest.param(255, "Error", True, False, id="255 is retryable"),
        pytest.param(137, "OOMKilled", False, True, id="out of memory is permanent although killed by a signal"),
        pytest.param(1, "OOMKilled", False, True, id="out of memory is permanent whatever the code"),
    ],
)
def test_exit_code(exit_code: int, reason: str, retryable: bool, permanent: bool) -> None:
    ended = Terminated(exit_code, reason)
    assert is_retryable_termination_state(ended) is retryable
    assert is_permanent_error(ended) is permanent


def test_the_text_of_an_exit_omits_the_generic_reason() -> None:
    assert exit_text(Terminated(1, "Error")) == "exit code 1"
    assert exit_text(Terminated(137, "OOMKilled")) == "exit code 137 (OOMKilled)"


# As containerd 2 and runc 1.3 write it.
RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: error during container init: {}: unknown"
)
NOT_FOUND = 'exec: "pyhton3": executable file not found in $PATH'
PERMANENT = [
    pytest.param(RUNC.format(NOT_FOUND), NOT_FOUND, id="not in the path"),
    pytest.param(
        RUNC.format('exec: "/opt/run.sh": stat /opt/run.sh: no such file or directory'),
        'exec: "/opt/run.sh": stat /opt/run.sh: no such file or directory',
        id="no such file",
    ),
    pytest.param(
        RUNC.format(r'exec: "say \"hi\"": executable file not found in $PATH'),
        r'exec: "say \"hi\"": executable file not found in $PATH',
        id="a name with quotes",
    ),
    pytest.param(
        RUNC.format('chdir to cwd ("/root/x") set in config.json failed: permission denied'),
        'chdir to cwd ("/root/x") set in config.json failed: permission denied',
        id="the working directory",
    ),
    pytest.param(
        "container create failed: executable file `pyhton3` not found in $PATH: No such file or directory",
        "executable file `pyhton3` not found in $PATH",
        id="crun",
    ),
    pytest.param(
        RUNC.format("unable to find user train: no matching entries in passwd file"),
        "unable to find user train: no matching entries in passwd file",
        id="a user that the image does not have",
    ),
    pytest.param(
        'failed to generate container "4f" spec: failed to apply OCI options: no command specified',
        "no command specified",
        id="an image without a program",
    ),
]
# These may pass: the same reason, but a node that is short of something.
PASSING = [
    "failed to create containerd task: failed to create shim task: context deadline exceeded: unknown",
    RUNC.format("write /proc/self/attr/keycreate: no space left on device"),
    "failed to create containerd task: failed to mount rootfs component: no such file or directory",
    "",
]


FRAMES = 'File "/train.py", line 3, in main\n    raise ValueError("no data")\n'


HEADER = "Traceback (most recent call last):\n"
FAILED_RANK = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 9)"
SUMMARY = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n  <NO_OTHER_FAILURES>\n{'-' * 60}\n"
    "Root Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 9)\n"
    f"  traceback : To enable\n{'=' * 60}\n"
)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (f"step 1\n{HEADER}  {FRAMES}ValueError: no data\n", "step 1 ValueError: no data"),
        # The beginning of the log is cut off.
        (f"  {FRAMES}  {FRAMES}ValueError: no data\nsee the docs", "ValueError: no data see the docs"),
        (
            '[rank1]: Traceback (most recent call last):\n[rank1]:   File "a.py", line 1\n[rank1]:     x = (\n'
            "[rank1]:         ^\n[rank1]: SyntaxError: '(' was never closed",
            "[rank1]: SyntaxError: '(' was never closed",
        ),
        # What follows the cause: at the exit of the interpreter, or in another process.
        (
            f"{HEADER}  {FRAMES}OutOfMemoryError: CUDA\nException ignored in: <a>\n{HEADER}  {FRAMES}TypeError: None",
            "OutOfMemoryError: CUDA Exception ignored in: <a> TypeError: None",
        ),
        # torchrun ends with another traceback and a summary.
        (
            f"{HEADER}  {FRAMES}ValueError: no data\n{FAILED_RANK}\n{HEADER}  {FRAMES}{SUMMARY}the script ends",
            f"ValueError: no data {FAILED_RANK} the script ends",
        ),
        (f"{FAILED_RANK}\n{SUMMARY[:150]}", FAILED_RANK),
        (f"{HEADER}  {FRAMES}", " ".join(f"{HEADER} {FRAMES}".split())),
        ("out of\n  space", "out of space"),
        ("", ""),
    ],
)
def test_the_frames_of_a_traceback_are_left_out(message: str, error: str) -> None:
    assert error_of(message) == error


@pytest.mark.parametrize(("message", "words"), PERMANENT)
def test_what_follows_from_image_and_command_is_permanent(message: str, words: str) -> None:
    assert why_never_started(Terminated(128, "StartError", message)) == words
    assert why_never_started(Terminated(128, "ContainerCannotRun", message)) == words


@pytest.mark.parametrize("message", PASSING)
def test_what_may_pass_is_not(message: str) -> None:
    assert why_never_started(Terminated(128, "StartError", message)) == ""


def test_the_output_of_a_program_is_not_taken_for_the_runtimes_message() -> None:
    assert why_never_started(Terminated(128, "Error", RUNC.format(NOT_FOUND))) == ""


def waits(reason: str, message: str = "", last: Terminated | None = None) -> ContainerStatus:
    return ContainerStatus(
        "node", state=ContainerState(waiting=Waiting(reason, message)), last_state=ContainerState(terminated=last)
    )


@pytest.mark.parametrize("reason", ["RunContainerError", "CreateContainerError"])
def test_a_container_that_waits_can_be_one_that_never_starts(reason: str) -> None:
    status = waits(reason, RUNC.format(NOT_FOUND))
    failure = start_failure([ContainerStatus("other"), status])
    assert failure is not None
    assert failure[0] == status.name
    assert why_never_started(failure[1]) == NOT_FOUND


def test_so_can_one_that_waits_to_be_started_again() -> None:
    last = Terminated(128, "StartError", RUNC.format(NOT_FOUND))
    assert start_failure([waits("CrashLoopBackOff", last=last)]) is not None
    assert start_failure([waits("CrashLoopBackOff", last=Terminated(1, "Error", NOT_FOUND))]) is None


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("CreateContainerConfigError", 'secret "key" not found'),
        ("ImagePullBackOff", NOT_FOUND),
        ("CreateContainerError", PASSING[0]),
        ("ContainerCreating", ""),
    ],
)
def test_others_that_wait_may_start_later(reason: str, message: str) -> None:
    assert start_failure([waits(reason, message)]) is None


@pytest.mark.parametrize("piece", ['exec: "', 'chdir to cwd ("', "unable to find user "])
def test_a_message_made_to_be_slow_is_read_at_once(piece: str) -> None:
    message = piece * 200_000
    began = time.process_time()
    assert why_never_started(Terminated(128, "StartError", message)) == ""
    assert time.process_time() - began < 1


# What the API server makes of a grace period that overflows: a second before, or 292 years.
@pytest.mark.parametrize("due", ["2026-01-01T00:00:00Z", "1734-01-01T00:00:00Z"])
@pytest.mark.parametrize("grace_seconds", [2**63 - 1, 18 * 10**9])
def test_a_deletion_with_an_endless_grace_period_was_requested_at_some_time(due: str, grace_seconds: int) -> None:
    requested = deletion_request_time(
        Pod(PodMeta("a", deletion_timestamp=due, deletion_grace_period_seconds=grace_seconds))
    )
    assert requested is not None
    assert parse_time(requested) < parse_time(due)
