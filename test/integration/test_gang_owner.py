"""A TFJob as the owner of a Gang, on a real API server; the test acts as the gang scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.manifests import container, master, pod_template, workers
from helpers.playedgang import NODE, PREFIX, GangOf
from helpers.playground import Playground, Script, Trial, condition
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.fakekubelet import DEFAULT_NODES, FakeKubelet

pytestmark = pytest.mark.cluster

Object = dict[str, Any]


@pytest.fixture
def gang(trial: Trial) -> GangOf:
    return GangOf(trial)


def submit(trial: Trial, *, count: int = 2, **gang: Any) -> None:
    trial.submit(master(), workers(count), gang={"enabled": True, **gang})


def scheduled(trial: Trial, reason: str) -> Object:
    """The condition once it gives that reason."""
    return condition(
        trial.await_status(lambda status: condition(status, "Scheduled").get("reason") == reason), "Scheduled"
    )


def attempts(trial: Trial) -> set[str]:
    return {each["metadata"]["labels"].get(f"{PREFIX}attempt", "") for each in trial.children("jobs").values()}


def await_no_jobs(trial: Trial) -> None:
    eventually(lambda: not trial.children("jobs"))


def test_nothing_but_the_gang_exists_before_there_is_capacity(trial: Trial, gang: GangOf) -> None:
    submit(trial, count=3, priority=5, minWorkers=2)
    spec = gang.get()["spec"]
    assert [(each["name"], each["count"]) for each in spec["members"]] == [("master", 1), ("worker", 3)]
    assert (spec["priority"], spec["minMembers"]) == (5, {"worker": 2})
    owner = gang.get()["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("TFJob", trial.name, True)
    scheduled(trial, "WaitingForScheduler")
    gang.says("Waiting", message="needs 4 pods", position=2)
    assert scheduled(trial, "WaitingForCapacity")["message"] == "needs 4 pods (position 2 in the queue)"
    assert trial.status()["reason"] == "waits for capacity: needs 4 pods (position 2 in the queue)"
    trial.await_event("WaitingForCapacity", "needs 4 pods")
    assert [trial.children(kind) for kind in ("jobs", "services", "pods", "configmaps")] == [{}, {}, {}, {}]


def test_once_admitted_all_is_created_with_its_assignment_and_runs(trial: Trial, gang: GangOf) -> None:
    submit(trial)
    gang.admit()
    pods = trial.await_children("pods", 3)
    trial.await_children("services", 3)
    assert len(trial.children("jobs")) == 3
    for pod in pods.values():
        labels = pod["metadata"]["labels"]
        member = f"{labels['job_type'].lower()}-{labels['task_index']}"
        seat = [labels[PREFIX + name] for name in ("gang", "member", "attempt")]
        assert seat == [gang.get()["metadata"]["name"], member, "1"]
        assert pod["spec"]["schedulerName"] == "gang-scheduler"
    assert scheduled(trial, "GangAdmitted")["message"] == "There is capacity for 3 of 3 replicas"
    gang.bind()
    gang.says("Bound")
    trial.end("master-0")
    assert trial.await_end()["phase"] == "Done"
    assert trial.notes("GangAdmitted") == ["There is capacity for 3 of 3 replicas"]


def test_back_in_the_queue_all_child_jobs_go_and_the_next_attempt_makes_new_ones(trial: Trial, gang: GangOf) -> None:
    submit(trial)
    gang.admit()
    before = trial.await_children("pods", 3)
    gang.bind()
    trial.await_running("worker-1")
    gang.back_to_the_queue()
    await_no_jobs(trial)
    assert trial.children("pods").keys().isdisjoint(before)
    assert len(trial.children("services")) == 3
    status = trial.await_phase("Creating")
    assert status.get("restarts", 0) == 0
    assert "startTime" not in status
    gang.admit(attempt=2)
    after = trial.await_children("pods", 3)
    assert attempts(trial) == {"2"}
    assert {pod["metadata"]["labels"][f"{PREFIX}attempt"] for pod in after.values()} == {"2"}
    gang.bind()
    trial.await_running("master-0")
    assert trial.await_phase("Running").get("restarts", 0) == 0


def test_a_suspended_job_releases_its_capacity_and_is_queued_again_when_it_goes_on(trial: Trial, gang: GangOf) -> None:
    submit(trial)
    gang.admit()
    trial.await_children("pods", 3)
    gang.bind()
    trial.await_running("master-0")
    trial.change(suspend=True)
    eventually(lambda: gang.get()["spec"].get("suspend"))
    gang.says("Released", placement=[])
    eventually(lambda: not trial.children("pods"))
    trial.change(suspend=False)
    eventually(lambda: not gang.get()["spec"].get("suspend"))
    await_no_jobs(trial)
    gang.admit(attempt=2)
    trial.await_children("pods", 3)
    assert attempts(trial) == {"2"}


def test_a_job_that_has_waited_too_long_is_suspended(trial: Trial, gang: GangOf) -> None:
    submit(trial, timeoutSeconds=1, onTimeout="Suspend")
    eventually(lambda: trial.get()["spec"].get("suspend"))
    trial.await_event("TimedOut", "No capacity within 1 s")
    eventually(lambda: gang.get()["spec"].get("suspend"))
    assert condition(trial.status(), "Scheduled")["reason"] == "TimedOut"


def test_a_gang_that_is_somebody_elses_is_left_alone_and_said(trial: Trial) -> None:
    group = "scheduling.kubeflow.org/v1alpha1"
    path = f"/apis/{group}/namespaces/{trial.namespace}/gangs"
    foreign = {"apiVersion": group, "kind": "Gang", "metadata": {"name": f"{trial.name}-ffff"}}
    trial.jobs.api.create(path, {**foreign, "spec": {"members": [{"name": "worker"}]}})
    trial.submit(master(), RuntimeId="ffff", gang={"enabled": True})
    trial.await_reason(f"Gang {trial.name}-ffff exists already")
    assert trial.children("jobs") == {}
    trial.jobs.api.delete(f"{path}/{trial.name}-ffff")


# With other flags


@pytest.fixture
def pinned(control_plane: Cluster, administrator: Kubectl) -> Iterator[Trial]:
    """A job of a controller that makes every job a gang and pins its pods."""
    namespace, script = new_namespace(control_plane.api, "pinned"), Script()
    kubelet = FakeKubelet(Api.from_kubeconfig(control_plane.own.kubeconfig), namespace=namespace, behaviour=script)
    flags = {"gang_scheduling": "always", "gang_mode": "affinity"}
    with kubelet, running_controller(control_plane.kubeconfig, namespace, **flags) as manager:
        yield Playground(manager, Jobs(control_plane.api, namespace), script).new_trial()
    delete_namespace(control_plane.api, namespace)


def test_pinned_pods_run_on_their_node_with_the_scheduler_that_is_there(pinned: Trial) -> None:
    gang = GangOf(pinned)
    pinned.submit(master(), workers(2))
    gang.admit(node=DEFAULT_NODES[1])
    for replica in ("worker-0", "worker-1", "master-0"):
        pod = pinned.await_pod(replica)
        assert (pod["spec"]["nodeName"], pod["spec"]["schedulerName"]) == (DEFAULT_NODES[1], "default-scheduler")
    gang.says("Bound")
    pinned.end("master-0")
    assert pinned.await_end()["phase"] == "Done"


def test_a_pinned_pod_that_cannot_run_is_recreated_where_it_is_placed_now(pinned: Trial) -> None:
    gang = GangOf(pinned)
    template = pod_template(container())
    pinned.submit(master(template=template), workers(1, template=template))
    gang.get()
    gang.says("Admitted", attempt=1, placement=[{"node": "no-such-node", "members": ["master-0", "worker-0"]}])
    pinned.await_children("pods", 2)
    gang.admit()
    assert {pinned.await_running(replica)["spec"]["nodeName"] for replica in ("master-0", "worker-0")} == {NODE}
    assert pinned.status().get("restarts", 0) == 0
