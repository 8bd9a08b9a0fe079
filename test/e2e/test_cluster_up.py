"""How long the commands take: here, where nothing else runs beside the test."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.timing import shortest
from localcluster import binaries, stack, state

ROOT = binaries.HACK.parent
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


def test_a_warm_cluster_up_is_ready_within_ten_seconds(environment: dict[str, str]) -> None:
    binaries.ensure_all(binaries.CONTROL_PLANE)
    seconds = shortest(lambda: cluster_up(environment), WARM_START_SECONDS)
    assert seconds < WARM_START_SECONDS, f"{seconds:.1f} s"


def cluster_up(environment: dict[str, str]) -> float:
    stack.down(state.stack_dir())
    started = time.monotonic()
    # -o: never make .venv anew here, which these tests run from.
    command = ["make", "-o", ".venv/.ready", "cluster-up"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    seconds = time.monotonic() - started
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[-1]).exists()
    return seconds
