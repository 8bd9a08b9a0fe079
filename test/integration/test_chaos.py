"""`make chaos` and `make chaos-gang` in a small size: jobs of all kinds reach their final states under faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from helpers import labcommand
from lab.chaos import REQUIRED_ZERO

# Without those after which nobody leads or serves for a while: a small run would do little else.
KINDS = (
    "creates 500,creates unanswered,deletes lost,statuses 409,statuses unanswered,watches 410,lists 429,leases late,"
    "connections cut,disk full,pod deleted,job suspended,job scaled,job deleted in the background,gang scheduler killed"
)
GANG_KINDS = "foreign pods,node cordoned,gang scheduler killed,bindings 409,bindings 500,bindings cut after"
SMALL = {"CHAOS_FAULTS": "12", "CHAOS_SEED": "3", "CHAOS_MEAN": "0.5", "CHAOS_REST": "1"}

pytestmark = [pytest.mark.long, pytest.mark.cluster]


def play(module: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Runs a command and returns its JSON line; no auditor has seen a violation."""
    # A run beside other tests says nothing of speed.
    (result,) = labcommand.play(module, {**SMALL, **variables, "AUDIT_SHARE_OF_MACHINE": "1"}, 380)
    assert {name: result[name] for name in REQUIRED_ZERO} == dict.fromkeys(REQUIRED_ZERO, 0)
    assert (result["seed"], result["violations"]) == (3, [])
    assert result["faults"] == sum(result["faults_by_kind"].values()) >= 12
    assert result["faults_by_kind"].keys() <= set(variables["CHAOS_KINDS"].split(","))
    assert result["jobs"] >= int(variables["CHAOS_JOBS"])
    assert result["auditors"]["jobs"]["versions_seen"] > 0
    return result


def test_jobs_come_to_what_they_should_while_things_break_and_no_auditor_sees_a_violation() -> None:
    play("lab.chaos", {"CHAOS_JOBS": "6", "CHAOS_KINDS": KINDS})


def test_gangs_come_through_while_things_break_and_no_auditor_sees_a_violation() -> None:
    gangs = play("lab.gangs", {"CHAOS_JOBS": "12", "CHAOS_KINDS": GANG_KINDS})["auditors"]["gangs"]
    assert gangs["bound"] > gangs["gangs"] >= 12
