"""`make chaos-checkpoint` in a small size: no checkpoint is lost or broken while what saves it is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster import stack

ROOT = Path(__file__).resolve().parents[2]
# A node that is killed costs a minute in which little else happens: `test_failures.py` has one.
KINDS = "program killed,sidecar killed,upload killed halfway,pod deleted,pod deleted at once,storage away"
SMALL = {"CHAOS_JOBS": "5", "CHAOS_KILLS": "10", "CHAOS_SEED": "4", "CHAOS_PARALLEL": "5", "CHAOS_KINDS": KINDS}


@pytest.mark.long
@pytest.mark.nodes
@pytest.mark.timeout(900)
def test_no_checkpoint_is_lost_or_broken_while_what_saves_it_is_killed() -> None:
    if stack.existing_kubeconfig() is not None:
        pytest.skip("kills containers, so it needs nodes of its own: unset KUBECONFIG")
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("real nodes need root on Linux")
    environment = {**os.environ, **SMALL, "PYTHONPATH": str(ROOT / "hack")}
    done = subprocess.run(
        [sys.executable, "-m", "lab.checkpoints"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["jobs"], result["jobs_succeeded"], result["seed"], result["violations"]) == (5, 5, 4, [])
    assert result["kills"] == sum(result["kills_by_kind"].values()) >= 8
    assert result["kills_by_kind"].keys() <= set(KINDS.split(","))
    assert result["restores"] > 0
    assert result["checkpoints_saved"] > result["jobs"]
