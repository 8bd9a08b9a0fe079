"""Tests of lab.requests: which requests each fault affects, and how many."""

from __future__ import annotations

from lab.requests import GANG_FAULTS, REQUEST_FAULTS, TARGETS, RequestFaults

TFJOB = "/apis/kubeflow.org/v1alpha1/namespaces/chaos/tfjobs/j"
TRAINJOB = "/apis/kubeflow.org/v2alpha1/namespaces/chaos/trainjobs/j"
JOBS = "/apis/batch/v1/namespaces/chaos/jobs"
# One request of each target, which is none of any other target.
REQUESTS = {
    "creates": ("POST", f"{JOBS}?fieldManager=x"),
    "deletes": ("DELETE", f"{JOBS}/j"),
    "patches": ("PATCH", f"{TFJOB}?fieldManager=x"),
    "statuses": ("PATCH", f"{TRAINJOB}/status?fieldManager=x"),
    "puts": ("PUT", f"{TFJOB}"),
    "reads": ("GET", f"{JOBS}/j"),
    "lists": ("GET", f"{JOBS}?resourceVersion=0&limit=500"),
    "watches": ("GET", f"{JOBS}?watch=true&resourceVersion=7"),
    "leases": ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tfjob-controller"),
    "events": ("POST", "/apis/events.k8s.io/v1/namespaces/chaos/events"),
    "bindings": ("POST", "/api/v1/namespaces/chaos/pods/p/binding"),
    "gang statuses": ("PATCH", "/apis/scheduling.kubeflow.org/v1alpha1/namespaces/chaos/gangs/g/status?x=y"),
}
OTHER = ("PATCH", "/api/v1/namespaces/chaos/pods/p")
BINDING = REQUESTS["bindings"]


def affected_count(kind: str, request: tuple[str, str]) -> int:
    faults = RequestFaults(1)
    faults.turn_on(kind, 0.5)
    return sum(faults.choose(*request) is not None for _ in range(1000))


def test_a_fault_affects_only_a_share_of_the_requests_of_its_target() -> None:
    for target in TARGETS:
        kind = next(kind for kind, fault in REQUEST_FAULTS.items() if fault.target == target)
        counts = {name: affected_count(kind, request) for name, request in {**REQUESTS, "other": OTHER}.items()}
        assert {name for name, count in counts.items() if count} == {target}
        assert 250 < counts[target] < 450, target


def test_a_fault_that_takes_long_affects_few_requests() -> None:
    assert GANG_FAULTS["bindings timed out"].most == 0.2
    assert 100 < affected_count("bindings timed out", BINDING) < 300


def test_the_same_seed_affects_the_same_requests() -> None:
    one, other = RequestFaults(seed=3), RequestFaults(seed=3)
    for faults in (one, other):
        faults.turn_on("bindings 409", 0.3)
    assert [one.choose(*BINDING) for _ in range(50)] == [other.choose(*BINDING) for _ in range(50)]


def test_no_request_is_affected_after_faults_are_turned_off() -> None:
    faults = RequestFaults(seed=1)
    faults.turn_on("bindings 409", 0.9)
    faults.turn_off()
    assert all(faults.choose(*BINDING) is None for _ in range(100))
