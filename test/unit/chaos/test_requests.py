"""Tests of chaos.requests: the faults of requests of the gang scheduler."""

from __future__ import annotations

import pytest

from chaos.plan import FAULTS
from chaos.requests import REQUEST_FAULTS, RequestFaults

BINDING = ("POST", "/api/v1/namespaces/chaos/pods/p/binding")
STATUS = ("PATCH", "/apis/scheduling.kubeflow.org/v1alpha1/namespaces/chaos/gangs/g/status?x=y")
OTHERS = [("GET", "/api/v1/namespaces/chaos/pods/p"), ("PATCH", "/api/v1/namespaces/chaos/pods/p")]


def affected_count(kind: str, request: tuple[str, str]) -> int:
    faults = RequestFaults(seed=1)
    faults.turn_on(kind, 0.5)
    return sum(faults.choose(*request) is not None for _ in range(1000))


@pytest.mark.parametrize("kind", REQUEST_FAULTS)
def test_a_fault_affects_a_share_of_its_target_and_no_other_requests(kind: str) -> None:
    target, other = (BINDING, STATUS) if kind.startswith("bindings") else (STATUS, BINDING)
    share = min(0.35, REQUEST_FAULTS[kind].most)
    assert share - 0.1 < affected_count(kind, target) / 1000 < share + 0.1
    assert [affected_count(kind, request) for request in (other, *OTHERS)] == [0, 0, 0]


def test_the_same_seed_affects_the_same_requests() -> None:
    one, other = RequestFaults(seed=3), RequestFaults(seed=3)
    for each in (one, other):
        each.turn_on("bindings 409", 0.3)
    assert [one.choose(*BINDING) for _ in range(50)] == [other.choose(*BINDING) for _ in range(50)]


def test_no_request_is_affected_after_faults_are_turned_off() -> None:
    faults = RequestFaults(seed=1)
    faults.turn_on("bindings 409", 0.9)
    faults.turn_off()
    assert all(faults.choose(*BINDING) is None for _ in range(100))


def test_every_kind_is_in_the_plan() -> None:
    assert REQUEST_FAULTS.keys() <= FAULTS.keys()
