"""Jobs of `kubeflow.org/v1` that run as gangs: nothing runs before all of it can."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.controllerbench import NAMESPACE
from helpers.v1bench import NAME, V1Bench
from tfjob_controller.jobs.gang.podgroup import GROUP_LABEL as ANY_GROUP_LABEL
from tfjob_controller.jobs.plan.gangterms import ALWAYS, NO_GANGS, ON_REQUEST, GangPolicy
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS

Object = dict[str, Any]
PREFIX = "scheduling.kubeflow.org/"
REPLICAS = {"Master": 1, "Worker": 2}
PODS = ["master-0", "worker-0", "worker-1"]
OWN = GangPolicy(ON_REQUEST, scheduler_name="gang-scheduler")


def requested(**policy: Any) -> Object:
    return {"runPolicy": {"schedulingPolicy": policy}}


def waiting(bench: V1Bench, **policy: Any) -> V1Bench:
    """Creates a job that waits for its gang."""
    bench.create(REPLICAS, **requested(**policy))
    bench.settle()
    return bench


def gang(bench: V1Bench) -> Object:
    (found,) = bench.api.list("gangs")
    return dict(found)


def says(bench: V1Bench, phase: str, **status: Any) -> None:
    """The gang scheduler reports about the Gang."""
    path = f"/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/gangs/{gang(bench)['metadata']['name']}"
    bench.api.change(path, {"status": {"phase": phase, **status}})
    bench.settle()


def admit(bench: V1Bench, attempt: int = 1, *members: str) -> None:
    placement = [{"node": "node-1", "members": list(members or PODS)}]
    says(bench, "Admitted", attempt=attempt, placement=placement)


def label(bench: V1Bench, replica: str, name: str) -> str:
    labels: dict[str, str] = bench.pod(replica)["metadata"]["labels"]
    return labels.get(f"{PREFIX}{name}", "")


@pytest.mark.parametrize(
    ("gangs", "spec"),
    [
        pytest.param(NO_GANGS, requested(minAvailable=3), id="gang scheduling is off, as upstream's by default"),
        pytest.param(OWN, {}, id="not requested"),
        pytest.param(GangPolicy(ALWAYS, backend=BACKENDS["kueue"]), requested(), id="Kueue runs these kinds itself"),
    ],
)
def test_a_job_that_is_no_gang_is_created_at_once(gangs: GangPolicy, spec: Object) -> None:
    bench = V1Bench("PyTorchJob", gangs)
    bench.create(REPLICAS, **spec)
    bench.settle()
    assert sorted(bench.pods) == PODS
    assert bench.conditions == [("Created", "True")]


def test_no_pod_exists_before_the_gang_is_admitted_and_the_state_stays_created() -> None:
    bench = waiting(V1Bench("PyTorchJob", OWN))
    assert (bench.pods, bench.services) == ([], [])
    assert [(member["name"], member.get("count", 1)) for member in gang(bench)["spec"]["members"]] == [
        ("master", 1),
        ("worker", 2),
    ]
    says(bench, "Waiting", message="no node has 8 nvidia.com/gpu", position=2)
    assert bench.conditions == [("Scheduled", "False"), ("Created", "True")]
    scheduled = bench.status["conditions"][0]
    assert scheduled["reason"] == "WaitingForCapacity"
    assert scheduled["message"] == "no node has 8 nvidia.com/gpu (position 2 in the queue)"
    assert ("Normal", "WaitingForCapacity", scheduled["message"]) in bench.recorder.events


def test_the_pods_of_an_admitted_gang_name_it_and_its_scheduler() -> None:
    bench = waiting(V1Bench("PyTorchJob", OWN))
    admit(bench)
    assert sorted(bench.pods) == sorted(bench.services) == PODS
    assert {label(bench, pod, "gang") for pod in PODS} == {gang(bench)["metadata"]["name"]}
    assert [(label(bench, pod, "member"), label(bench, pod, "attempt")) for pod in PODS] == [(pod, "1") for pod in PODS]
    assert {bench.pod(pod)["spec"]["schedulerName"] for pod in PODS} == {"gang-scheduler"}
    bench.runs(*PODS)
    bench.settle()
    assert bench.conditions == [("Scheduled", "True"), ("Created", "True"), ("Running", "True")]


def test_pods_are_pinned_to_their_nodes_if_the_controller_pins() -> None:
    bench = waiting(V1Bench("PyTorchJob", GangPolicy(ON_REQUEST, pins=True)))
    admit(bench)
    spec = bench.pod("worker-1")["spec"]
    assert "schedulerName" not in spec
    assert "node-1" in str(spec["affinity"]["nodeAffinity"])


def test_a_gang_that_loses_its_place_runs_again_as_a_whole() -> None:
    bench = waiting(V1Bench("PyTorchJob", OWN))
    admit(bench)
    bench.runs(*PODS)
    bench.settle()
    says(bench, "Waiting", placement=[], message="its node is lost", position=1)
    assert (bench.pods, bench.state) == ([], "Restarting")
    bench.is_gone(*PODS)
    admit(bench, 2)
    assert sorted(bench.pods) == PODS
    assert {label(bench, pod, "attempt") for pod in PODS} == {"2"}
    bench.runs(*PODS)
    bench.settle()
    assert bench.state == "Running"
    assert "kubeflow.org/training-status" not in bench.job["metadata"].get("annotations", {}), "no restart is counted"


def test_a_failed_pod_of_a_gang_is_replaced_in_its_place() -> None:
    bench = waiting(V1Bench("PyTorchJob", OWN))
    admit(bench)
    bench.runs(*PODS)
    bench.settle()
    bench.exits("worker-1", 137)
    bench.settle()
    bench.is_gone("worker-1")
    bench.settle()
    assert (label(bench, "worker-1", "member"), label(bench, "worker-1", "attempt")) == ("worker-1", "1")


def test_with_min_available_the_gang_may_start_with_fewer_workers() -> None:
    bench = waiting(V1Bench("PyTorchJob", OWN), minAvailable=2)
    assert gang(bench)["spec"]["minMembers"] == {"worker": 1}
    admit(bench, 1, "master-0", "worker-0")
    assert sorted(bench.pods) == ["master-0", "worker-0"]
    admit(bench, 1)
    assert sorted(bench.pods) == PODS


def test_a_job_that_ran_before_gang_scheduling_was_turned_on_continues_as_it_is() -> None:
    bench = V1Bench("PyTorchJob")
    bench.create(REPLICAS, **requested())
    bench.settle()
    bench.runs(*PODS)
    bench.settle()
    bench.restart(OWN)
    bench.settle()
    assert (sorted(bench.pods), list(bench.api.list("gangs"))) == (PODS, [])
    bench.exits("worker-1", 137)
    bench.settle()
    bench.is_gone("worker-1")
    bench.settle()
    assert label(bench, "worker-1", "gang") == ""
    bench.change(runPolicy={"suspend": True})
    bench.settle()
    bench.is_gone("master-0", "worker-0")
    bench.change(runPolicy={"suspend": False})
    bench.settle()
    assert (bench.pods, len(bench.api.list("gangs"))) == ([], 1), "once it was suspended it is a gang"


def test_a_suspended_or_ended_job_holds_no_capacity() -> None:
    bench = waiting(V1Bench("PyTorchJob", OWN))
    admit(bench)
    bench.change(runPolicy={"suspend": True})
    bench.settle()
    assert gang(bench)["spec"]["suspend"]
    assert (bench.pods, bench.state) == ([], "Suspended")
    bench.change(runPolicy={"suspend": False})
    bench.settle()
    says(bench, "Waiting", placement=[], message="no room", position=1)
    assert bench.conditions == [("Scheduled", "False"), ("Suspended", "False"), ("Created", "True")]


def test_another_scheduler_gets_a_pod_group_with_upstreams_name_and_fields() -> None:
    bench = V1Bench("PyTorchJob", GangPolicy(ON_REQUEST, scheduler_name="volcano", backend=BACKENDS["volcano"]))
    bench.create(REPLICAS, **requested(minAvailable=2, queue="research", priorityClass="high"))
    bench.settle()
    (group,) = bench.api.list("podgroups")
    assert group["metadata"]["name"] == NAME
    assert group["spec"] | {"minResources": {}} == {
        "minMember": 2,
        "minResources": {},
        "queue": "research",
        "priorityClassName": "high",
    }
    pod = bench.pod("worker-0")
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == NAME
    assert pod["metadata"]["labels"][ANY_GROUP_LABEL] == NAME
    assert pod["spec"]["schedulerName"] == "volcano"
    bench.runs(*PODS)
    bench.exits("master-0", 0)
    bench.settle()
    assert list(bench.api.list("podgroups")) == []


def test_requests_that_are_no_quantities_make_the_job_invalid() -> None:
    bench = V1Bench("PyTorchJob", OWN)
    bench.create(REPLICAS, **requested())
    container = {"name": "pytorch", "image": "i", "resources": {"requests": {"cpu": "many"}}}
    field = {"Worker": {"template": {"spec": {"containers": [container]}}}}
    bench.change(pytorchReplicaSpecs=field)
    bench.settle()
    assert bench.state == "Failed"
    assert "spec.pytorchReplicaSpecs[Worker].template: " in bench.status["conditions"][-1]["message"]


def test_a_suspended_job_waits_for_no_capacity_even_after_its_wait_has_timed_out() -> None:
    bench = waiting(V1Bench("PyTorchJob", OWN), scheduleTimeoutSeconds=5)
    bench.clock.advance(10)
    bench.settle()
    assert bench.status["conditions"][0]["reason"] == "TimedOut"
    bench.change(runPolicy={"suspend": True})
    bench.settle()
    scheduled = bench.status["conditions"][0]
    assert (scheduled["type"], scheduled["reason"]) == ("Scheduled", "NotWaiting")
    assert scheduled["message"] == "Suspended: spec.suspend is true"


@pytest.mark.parametrize("backend", [None, "volcano"])
@pytest.mark.parametrize(("least", "is_warned"), [(0, True), (1, False), (3, False), (4, True)])
def test_a_minimum_out_of_bounds_is_named(backend: str | None, least: int, is_warned: bool) -> None:
    gangs = OWN if backend is None else GangPolicy(ON_REQUEST, backend=BACKENDS[backend])
    bench = waiting(V1Bench("PyTorchJob", gangs), minAvailable=least)
    scheduled = bench.status["conditions"][0]
    words = f"; spec.runPolicy.schedulingPolicy.minAvailable is {least}, which is not between 1 and 3, the number of"
    assert scheduled["type"] == "Scheduled"
    assert (words in scheduled["message"]) == is_warned
    if backend is None:
        admit(bench)
        assert (words in bench.status["conditions"][0]["message"]) == is_warned
