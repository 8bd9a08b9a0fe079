"""`make chaos` in a small size: jobs of all kinds reach their final states under faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Without those after which nobody leads or serves for a while: a small run would do little else.
KINDS = (
    "creates 500,creates unanswered,deletes lost,statuses 409,statuses unanswered,watches 410,lists 429,leases late,"
    "connections cut,disk full,pod deleted,job suspended,job scaled,job deleted in the background,gang scheduler killed"
)
SMALL = {"CHAOS_FAULTS": "12", "CHAOS_JOBS": "6", "CHAOS_SEED": "3", "CHAOS_MEAN": "0.4", "CHAOS_REST": "1"}


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_jobs_come_to_what_they_should_while_things_break_and_no_auditor_sees_a_violation() -> None:
    # A run beside other tests says nothing of speed.
    of_test = {"CHAOS_KINDS": KINDS, "AUDIT_SHARE_OF_MACHINE": "1", "PYTHONPATH": str(ROOT / "hack")}
    environment = {**os.environ, **SMALL, **of_test}
    done = subprocess.run(
        [sys.executable, "-m", "lab.chaos"], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=380
    )
    assert done.returncode == 0, done.stderr + done.stdout
    said = json.loads(done.stdout.splitlines()[-1])
    judged = (
        "duplicates",
        "orphans",
        "partial_gangs",
        "wrong_states",
        "reruns",
        "late_starts",
        "stuck",
        "threads_leaked",
    )
    assert {name: said[name] for name in judged} == dict.fromkeys(judged, 0)
    assert (said["seed"], said["unfinished"], said["violations"]) == (3, 0, [])
    assert said["faults"] == sum(said["faults_by_kind"].values()) >= 12
    assert said["faults_by_kind"].keys() <= set(KINDS.split(","))
    assert said["jobs"] >= 6
    assert said["auditors"]["jobs"]["versions_seen"] > 0
