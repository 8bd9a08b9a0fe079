"""`make demo-gang`, as a user runs it: jobs deadlock without gang scheduling, and do not with it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helpers.demos import interrupt_at, start_demo
from localcluster import process, state

pytestmark = pytest.mark.cluster

# The promise is 90 s on a machine that does nothing else; here it may.
TIMEOUT_SECONDS = 600


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[str]:
    """With a state folder of its own, so that nobody's stack is touched."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return start_demo("demo", "gang", KUBECONFIG="")


def test_two_jobs_wait_for_each_other_without_gangs_and_not_with_them(demo: subprocess.Popen[str]) -> None:
    output = demo.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert demo.returncode == 0, output
    for words in (
        "✓ without gangs: neither job ran, holding ",
        "✓ with gangs: both jobs completed, one after the other",
        "✓ with gangs: no job held a GPU while it waited for others",
        "Insufficient nvidia.com/gpu",
        "waits for capacity: needs 1 ",
        "docs/gang-scheduling.md",
    ):
        assert words in output, output
    assert process.marked(state.stack_dir("demo-gang")) == []


@pytest.mark.long
def test_an_interrupted_demo_leaves_nothing(demo: subprocess.Popen[str]) -> None:
    interrupt_at(demo, "1. The default scheduler")
    assert process.marked(state.stack_dir("demo-gang")) == []
