"""`make chaos-gang` in a small size: no violation while programs are killed and nodes deleted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Without those faults after which nobody works for a while: they have tests of their own.
KINDS = "foreign pods,node cordoned,gang scheduler killed,bindings 409,bindings 500,bindings cut after"
SMALL = {"CHAOS_GANGS": "12", "CHAOS_AT_ONCE": "12", "CHAOS_SEED": "9", "CHAOS_FAULTS": "0.6", "CHAOS_KINDS": KINDS}


@pytest.mark.long
@pytest.mark.cluster
def test_gangs_come_through_while_things_break_and_the_auditor_sees_no_violation() -> None:
    # A run beside other tests says nothing of speed.
    environment = {**os.environ, **SMALL, "AUDIT_SHARE_OF_MACHINE": "1", "PYTHONPATH": str(ROOT / "hack")}
    done = subprocess.run(
        [sys.executable, "-m", "lab.gangs"], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr + done.stdout
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["gangs"], said["seed"], said["unfinished"], said["violations"]) == (12, 9, 0, [])
    assert said["pods"] > 12
    assert said["faults"] == sum(said["faults_by_kind"].values()) > 0
    assert said["faults_by_kind"].keys() <= set(KINDS.split(","))
    assert said["auditor"]["gangs"] == 12
    assert said["auditor"]["bound"] >= said["pods"]
