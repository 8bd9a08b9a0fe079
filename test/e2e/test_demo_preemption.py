"""`python -m demo preemption`, as `make demo-preemption` calls it: on two real nodes, which are removed afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.preemption import SCENE
from helpers import machine
from helpers.demos import start_demo
from localcluster import process, stack, state

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.long,
    pytest.mark.usefixtures("own_nodes"),
]

# A minute and a half on a machine that does nothing else.
TIMEOUT_SECONDS = 800


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """With a state folder of its own, so that nobody's stack is touched. It does not outlive the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    demo = start_demo("demo", "preemption", KUBECONFIG="")
    yield demo
    demo.kill()
    demo.communicate()
    stack.down(state.stack_dir(SCENE.cluster.name))


def test_an_urgent_job_takes_the_place_of_one_that_goes_on_from_its_checkpoint(
    demo: subprocess.Popen[str],
) -> None:
    before = machine.listing()
    output = demo.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert demo.returncode == 0, output
    for words in (
        "✓ the urgent job ended Done, and no pod of one job ran beside one of the other",
        "✓ resume-torch went on after step",
        "✓ resume-torch ended Done with 0 restarts",
        "docs/gang-scheduling.md#preemption",
    ):
        assert words in output, output
    assert process.marked(state.stack_dir(SCENE.cluster.name)) == []
    assert machine.listing() == before
