"""`python -m demo autoscale`, as `make demo-autoscale` calls it: on two real nodes, which are removed afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.autoscale import CLUSTER
from helpers import machine
from helpers.demos import interrupt_at, start_demo
from localcluster import process, stack, state

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("own_nodes")]

# The promise is 180 s on a machine that does nothing else; here it may.
TIMEOUT_SECONDS = 600

Listing = dict[str, list[str]]


@pytest.fixture
def before() -> Listing:
    """Of the machine."""
    return machine.listing()


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """With a state folder of its own, so that nobody's stack is touched. It does not outlive the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    demo = start_demo("demo", "autoscale", KUBECONFIG="")
    yield demo
    demo.kill()
    demo.communicate()
    stack.down(state.stack_dir(CLUSTER.name))


@pytest.mark.long
def test_a_job_gives_workers_up_for_another_one_and_gets_them_back(
    before: Listing, demo: subprocess.Popen[str]
) -> None:
    output = demo.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert demo.returncode == 0, output
    for words in (
        "Resized first: shrunk 4 → 2 workers: capacity for default/second",
        "Resized first: grown 2 → 3 workers: the cluster has free capacity",
        "Resized first: grown 3 → 4 workers: the cluster has free capacity",
        "✓ the first job released 2 workers for the second and got them back",
        "✓ 3 of its pods ran all the time without a restart",
        "✓ it continued training",
        "✓ second, counted by TensorFlow: steps counted: 200 of 200",
        "docs/autoscaling.md",
    ):
        assert words in output, output
    assert process.marked(state.stack_dir(CLUSTER.name)) == []
    assert machine.listing() == before


@pytest.mark.long
def test_an_interrupted_demo_leaves_nothing(before: Listing, demo: subprocess.Popen[str]) -> None:
    interrupt_at(demo, "1. first")
    assert process.marked(state.stack_dir(CLUSTER.name)) == []
    assert machine.listing() == before
