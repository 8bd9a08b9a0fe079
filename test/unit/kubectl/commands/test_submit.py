"""How `submit` ends when it also follows or waits, and the job does not end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from helpers.jobserver import NAMESPACE, flags_of, plugin_of
from helpers.memoryapi import MemoryApi
from helpers.plugin import program
from tfjob_controller.api.tfjob import TFJOBS
from tfjob_controller.kubectl import cli
from tfjob_controller.kubectl.commands.wait import EXIT_TIMEOUT

STAYS = (
    "The job stays: `kubectl tfjob wait tfjob/train -n team` waits again, `kubectl tfjob delete tfjob/train -n team` "
    "deletes it\n"
)


def test_following_ends_when_the_time_is_over_and_the_job_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = MemoryApi()
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, out, error = plugin("submit", "train", "--image", "i", "-f", "--timeout", "0.2s")
    waits, over = error.splitlines(keepends=True)
    assert (code, out) == (EXIT_TIMEOUT, "tfjob/train created\n")
    assert waits == "waiting for train: it has not started yet\n"
    assert over.startswith("kubectl tfjob: timed out after 0.2s waiting for Succeeded: tfjob/train is ")
    assert over.endswith(STAYS)
    assert TFJOBS.path(NAMESPACE, "train") in api.objects


@pytest.mark.parametrize("flag", ["--wait", "--follow"])
def test_ctrl_c_says_that_the_job_stays_and_how_to_stop_it(flag: str, tmp_path: Path) -> None:
    with (
        flags_of(MemoryApi(), tmp_path) as flags,
        program("submit", "train", "--image", "i", flag, *flags) as running,
    ):
        assert running.stdout is not None
        assert running.stdout.readline() == "tfjob/train created\n"
        running.send_signal(signal.SIGINT)
        out, error = running.communicate(timeout=60)
    assert (running.returncode, out) == (cli.EXIT_INTERRUPTED, "")
    assert error.splitlines()[-1] == (
        "kubectl tfjob: interrupted: tfjob/train stays. `kubectl tfjob wait tfjob/train -n team` waits for it again, "
        "`kubectl tfjob delete tfjob/train -n team` stops and deletes it"
    )
