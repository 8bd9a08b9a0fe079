"""Tests of chaos.jobs: which requests each fault affects, the settings, and the count of leaked threads."""

from __future__ import annotations

import pytest

from chaos.jobs.controllers import names_in
from chaos.jobs.faultplan import ELECTED, FAULTS, REQUEST_FAULTS, TARGETS
from chaos.jobs.faults import LANES
from chaos.jobs.leaks import Count, count_outside_pool, leaked
from chaos.jobs.settings import settings_of
from chaos.requests import RequestFaults

TFJOB = "/apis/kubeflow.org/v1alpha1/namespaces/chaos/tfjobs/j"
TRAINJOB = "/apis/kubeflow.org/v2alpha1/namespaces/chaos/trainjobs/j"
JOBS = "/apis/batch/v1/namespaces/chaos/jobs"
# One request of each target, which affected_count no other target.
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
    "gang statuses": ("PATCH", "/apis/scheduling.kubeflow.org/v1alpha1/namespaces/chaos/gangs/g/status"),
}


def affected_count(kind: str, request: tuple[str, str]) -> int:
    faults = RequestFaults(1, REQUEST_FAULTS, TARGETS)
    faults.turn_on(kind, 0.5)
    return sum(faults.choose(*request) is not None for _ in range(200))


@pytest.mark.parametrize("target", TARGETS)
def test_a_fault_affects_only_the_requests_of_its_target(target: str) -> None:
    kind = next(kind for kind, fault in REQUEST_FAULTS.items() if fault.target == target)
    assert {name for name, request in REQUESTS.items() if affected_count(kind, request)} == {target}


def test_every_write_of_the_controller_can_be_lost_before_and_after_the_server_processes_it() -> None:
    for target in ("creates", "deletes", "patches", "statuses", "leases"):
        assert {f"{target} lost", f"{target} unanswered", f"{target} 500"} <= FAULTS.keys()


def test_every_kind_of_a_lane_is_in_the_plan() -> None:
    assert {kind for kinds in LANES.values() for kind in kinds} | set(ELECTED) <= FAULTS.keys()


def test_by_default_a_thousand_faults_of_all_kinds_occur_with_a_random_seed() -> None:
    settings = settings_of({})
    assert (settings.faults, settings.kinds) == (1000, ())
    assert len({settings_of({}).seed for _ in range(5)}) > 1


def test_a_run_reports_the_variables_that_repeat_it() -> None:
    given = {"CHAOS_SEED": "7", "CHAOS_FAULTS": "20", "CHAOS_JOBS": "5", "CHAOS_KINDS": "disk full, lease stolen"}
    variables = settings_of(given).variables
    assert variables == 'CHAOS_SEED=7 CHAOS_FAULTS=20 CHAOS_JOBS=5 CHAOS_MEAN=0.5 CHAOS_KINDS="disk full,lease stolen"'


def test_an_unknown_fault_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown kinds of faults: earthquake"):
        settings_of({"CHAOS_KINDS": "earthquake"})


@pytest.mark.parametrize(
    ("after", "threads"),
    [
        pytest.param({True: Count(20, 9), False: Count(8, 9)}, 0, id="unchanged"),
        pytest.param({True: Count(18, 99)}, 0, id="fewer, without a standby"),
        pytest.param({True: Count(23, 9), False: Count(9, 9)}, 4, id="more of both roles"),
    ],
)
def test_leaders_and_standbys_are_compared_separately(after: dict[bool, Count], threads: int) -> None:
    assert leaked({True: Count(20, 9), False: Count(8, 9)}, after) == threads


def test_threads_of_the_writer_pool_are_not_counted() -> None:
    names = ["MainThread", "writer_0", "handler-jobs (2)", "writer_1"]
    # The format of /debug/threads, with stacks.
    stacks = "\n".join(f'{name} (14)\n  File "a.py", line 3, in run (7)\n    wait()\n' for name in names)
    assert names_in(stacks) == names
    assert count_outside_pool(names) == 2
