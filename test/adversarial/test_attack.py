"""`make attack`: all attacks of a tenant at once on both programs, with their shipped limits, beside another tenant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from helpers import labcommand
from lab.attack import dashboard, tenant
from localcluster import stack

pytestmark = pytest.mark.cluster

# Machines are shared and noisy: a job that starts after ATTACK_START is delayed by more than they explain. Beside the
# other tests, an Indexed Job without any operator has taken 35 s.
SMALL = {
    "ATTACK_SECONDS": "20",
    "ATTACK_EVERY": "4",
    "ATTACK_SIZE": "0.05",
    "ATTACK_START": "120",
    "ATTACK_PROBE": "60",
}
PROGRAMS = ("controller", "extender")


def attack(settings: Mapping[str, str], seconds: float) -> dict[str, Any]:
    """Runs it and returns the figures."""
    if stack.existing_kubeconfig() is not None:
        pytest.skip("attacks a control plane of its own: unset KUBECONFIG")
    (figures,) = labcommand.play("lab.attack", settings, seconds)
    return figures


def check(figures: dict[str, Any]) -> None:
    assert figures["broken"] == []
    for name in PROGRAMS:
        program = figures[name]
        assert (program["is_alive"], program["leases"]) == (True, 1)
        assert 0 < program["peak_resident_mb"] < program["limit_mb"]
        assert program["probes"] > program["probes_failed"] == 0
    other = figures["other"]
    assert other["jobs"] == other["succeeded"] > 0
    assert other["gang_started"]["max"] > 0, "one of them was a gang"
    assert figures["hostile"]["connections"] > 0
    assert figures["dashboard"]["visits"] > 0
    assert figures["reports"]["200"] > 0
    assert any(kind.startswith("forged_report_") for kind in figures["hostile"])
    missing = [kind for kind in (*tenant.KINDS, *dashboard.KINDS) if not figures["hostile"].get(kind)]
    assert not missing, json.dumps(figures["hostile"])


# Each attack has its own test; this one proves that the tool works, in four minutes of both cores.
@pytest.mark.long
def test_all_attacks_at_once_end_no_program_and_delay_no_other_tenant() -> None:
    check(attack(SMALL, 580))


@pytest.mark.long
@pytest.mark.timeout(1400)
def test_ten_minutes_of_all_attacks_end_no_program_and_delay_no_other_tenant() -> None:
    check(attack({}, 1350))
