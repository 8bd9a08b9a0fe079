"""`make demo-gang`, as a user runs it: the deadlock is seen, and then none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import interrupt
from localcluster import process, stack, state

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ROOT = Path(stack.__file__).parents[2]
# The promise is 90 s on a machine that does nothing else; here it may.
TIMEOUT_SECONDS = 200


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[str]:
    """With a state folder of its own, so that nobody's stack is touched."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return subprocess.Popen(
        [sys.executable, "-m", "demo.gang"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "hack"), "KUBECONFIG": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=interrupt.allow,
    )


def test_two_jobs_wait_for_each_other_without_gangs_and_not_with_them(demo: subprocess.Popen[str]) -> None:
    output = demo.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert demo.returncode == 0, output
    for words in (
        "✓ without gangs: both jobs stood still, holding ",
        "✓ with gangs: both jobs ran to their end, one after the other",
        "✓ with gangs: no job held a GPU while it waited for others",
        "Insufficient nvidia.com/gpu",
        "waits for room: needs 1 ",
        "docs/gang-scheduling.md",
    ):
        assert words in output, output
    assert process.marked(state.stack_dir("demo-gang")) == []


def test_an_interrupted_demo_leaves_nothing(demo: subprocess.Popen[str]) -> None:
    assert demo.stdout is not None
    for line in demo.stdout:
        if "1. The default scheduler" in line:
            break
    demo.send_signal(signal.SIGINT)
    rest = demo.stdout.read()
    assert demo.wait(60) == 128 + signal.SIGINT
    assert "Traceback" not in rest
    assert "interrupted: everything that the demo started is stopped" in rest
    assert process.marked(state.stack_dir("demo-gang")) == []
