"""`make chaos-checkpoint` in a small size: no checkpoint is lost or broken while what saves it is killed."""

from __future__ import annotations

import os
import sys

import pytest

from helpers import labcommand
from localcluster import stack

# A node that is killed costs a minute in which little else happens: `test_failures.py` has one.
KINDS = "program killed,sidecar killed,upload killed halfway,pod deleted,pod deleted at once,storage away"
SMALL = {"CHAOS_JOBS": "5", "CHAOS_KILLS": "10", "CHAOS_SEED": "4", "CHAOS_PARALLEL": "5", "CHAOS_KINDS": KINDS}


@pytest.mark.long
@pytest.mark.nodes
def test_no_checkpoint_is_lost_or_broken_while_what_saves_it_is_killed() -> None:
    if stack.existing_kubeconfig() is not None:
        pytest.skip("kills containers, so it needs nodes of its own: unset KUBECONFIG")
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("real nodes need root on Linux")
    (result,) = labcommand.play("lab.checkpoints", SMALL, 880)
    assert (result["jobs"], result["jobs_succeeded"], result["seed"], result["violations"]) == (5, 5, 4, [])
    assert result["kills"] == sum(result["kills_by_kind"].values()) >= 8
    assert result["kills_by_kind"].keys() <= set(KINDS.split(","))
    assert result["restores"] > 0
    assert result["checkpoints_saved"] > result["jobs"]
