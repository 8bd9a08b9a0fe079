"""`python -m demo.autoscale`, as `make demo-autoscale` calls it: on two real nodes, which are then gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.autoscalestage import NAME
from helpers import interrupt, machine
from localcluster import process, stack, state

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("own_nodes"), pytest.mark.timeout(600)]

ROOT = Path(stack.__file__).parents[2]
# The promise is 180 s on a machine that does nothing else; here it may.
TIMEOUT_SECONDS = 500

Listing = dict[str, list[str]]


@pytest.fixture
def before() -> Listing:
    """Of the machine."""
    return machine.listing()


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """With a state folder of its own, so that nobody's stack is touched. It does not outlive the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    demo = subprocess.Popen(
        [sys.executable, "-m", "demo.autoscale"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "hack"), "KUBECONFIG": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=interrupt.allow,
    )
    yield demo
    demo.kill()
    demo.communicate()
    stack.down(state.stack_dir(NAME))


def test_a_job_gives_workers_up_for_another_one_and_gets_them_back(demo: subprocess.Popen[str]) -> None:
    output = demo.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert demo.returncode == 0, output
    for words in (
        "Resized first: shrunk 4 → 2 workers: room for default/second",
        "Resized first: grown 2 → 3 workers: the cluster has room",
        "Resized first: grown 3 → 4 workers: the cluster has room",
        "✓ the first job gave up 2 workers for the second, and got them back",
        "✓ 3 of its pods went on all the time: none was restarted",
        "✓ it went on training",
        "✓ second, counted by TensorFlow: steps counted: 200 of 200",
        "docs/autoscaling.md",
    ):
        assert words in output, output
    assert process.marked(state.stack_dir(NAME)) == []


def test_an_interrupted_demo_leaves_nothing(before: Listing, demo: subprocess.Popen[str]) -> None:
    assert demo.stdout is not None
    for line in demo.stdout:
        if "1. first" in line:
            break
    demo.send_signal(signal.SIGINT)
    rest = demo.stdout.read()
    assert demo.wait(60) == 128 + signal.SIGINT
    assert "Traceback" not in rest
    assert "interrupted: everything that the demo started is stopped" in rest
    assert process.marked(state.stack_dir(NAME)) == []
    assert machine.listing() == before
