"""`make cluster-up` and related commands, as their page shows them, and their duration on an idle machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import machine
from helpers.docs import commands, inline_commands
from helpers.timing import shortest
from localcluster import binaries, stack, state

ROOT = binaries.HACK.parent
PAGE = "docs/local-cluster.md"
WARM_START_SECONDS = 10.0

pytestmark = pytest.mark.cluster


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The user's own cache, but a state folder of this test's."""
    if stack.existing_kubeconfig() is not None:
        pytest.skip("measures the local cluster itself: unset KUBECONFIG")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield dict(os.environ)
    stack.down(state.stack_dir())


@pytest.mark.long
def test_a_warm_cluster_up_is_ready_within_ten_seconds(environment: dict[str, str]) -> None:
    binaries.ensure_all(binaries.CONTROL_PLANE)
    seconds = shortest(lambda: cluster_up(environment), WARM_START_SECONDS)
    assert seconds < WARM_START_SECONDS, f"{seconds:.1f} s"


@pytest.mark.nodes
@pytest.mark.usefixtures("own_nodes")
@pytest.mark.long
def test_every_command_of_the_page_does_what_it_says(environment: dict[str, str], tmp_path: Path) -> None:
    """A stack without nodes is ended before that with nodes is started, of which one is killed and comes back.

    The images that the page makes are all that its Deployments and its job have: no node can pull any.
    """
    before = machine.listing()
    shown = {each.make_target: each.text for each in inline_commands(PAGE)}
    down = "make cluster-down"
    for each in [command.text for command in commands(PAGE)]:
        if "NODES=" in each:
            make(down, environment)
        if each.startswith("kubectl "):
            run(each, with_programs(environment, tmp_path))
        elif each != down:
            make(each, environment)
    make(shown["node-kill"], environment)
    make(shown["node-start"], environment)
    assert down in [command.text for command in commands(PAGE)]
    make(down, environment)
    assert machine.listing() == before


def cluster_up(environment: dict[str, str]) -> float:
    stack.down(state.stack_dir())
    started = time.monotonic()
    said = make("make cluster-up", environment)
    seconds = time.monotonic() - started
    assert Path(said.splitlines()[-1]).exists()
    return seconds


def with_programs(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """What a reader's shell has by now: the kubeconfig, kubectl and the plugin."""
    programs = [str(path.parent) for path in (binaries.ensure("kubectl"), ROOT / ".venv" / "bin" / "kubectl-tfjob")]
    return {
        **environment,
        "KUBECONFIG": str(state.stack_dir() / "kubeconfig"),
        "KUBECACHEDIR": str(folder / "kubectl"),
        "PATH": ":".join([*programs, environment["PATH"]]),
    }


def make(line: str, environment: dict[str, str]) -> str:
    """What it prints for programs."""
    # -o: never make .venv anew here, which these tests run from.
    return run(line.replace("make ", "make -o .venv/.ready ", 1), environment)


def run(line: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout
