"""Gangs that another scheduler runs: which object stands for them, when it goes, and what is said of the job."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import World, world
from helpers.manifests import container, master, parameter_servers, pod_template, workers
from helpers.trainworld import ends, jobs, train_world, world_in_steps
from tfjob_controller.api.common.core import Condition, Pod, PodGroup, PodStatus
from tfjob_controller.jobs.actions.model import NO_ACTIONS
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS

NAME = "example-job-a6no"
INITIALIZERS = ["dataset-initializer-0", "model-initializer-0"]
NODES = ["node-0", "node-1"]
Object = dict[str, Any]


def policy(backend: str, which: str = ON_REQUEST) -> GangPolicy:
    return GangPolicy(which, BACKENDS[backend].scheduler_name, backend=BACKENDS[backend])


def asking(**requests: str) -> Object:
    return pod_template(container(resources={"requests": requests}), restartPolicy="OnFailure")


def grouped(backend: str, *replica_specs: Any, **gang: Any) -> World:
    cluster = world(*(replica_specs or (master(), workers(2))), gang={"enabled": True, **gang})
    cluster.gangs = policy(backend)
    cluster.settle()
    return cluster


def group_of(cluster: World) -> PodGroup:
    assert cluster.pod_group is not None
    return cluster.pod_group


def says(cluster: World, **status: Any) -> None:
    cluster.pod_group = replace(group_of(cluster), status=status)
    cluster.settle()


def condition(type_: str, status: str, message: str = "") -> Object:
    return {"type": type_, "status": status, "message": message, "lastTransitionTime": "2026-11-22T00:00:00Z"}


def scheduled(cluster: World) -> tuple[str, str, str]:
    (found,) = [each for each in cluster.job.status.conditions if each.type == "Scheduled"]
    return found.status, found.reason, found.message


def test_it_is_owned_by_the_job_and_found_by_its_labels() -> None:
    cluster = grouped("volcano")
    meta = group_of(cluster).metadata
    assert (meta.name, meta.namespace) == (NAME, "ns")
    assert [(owner.kind, owner.controller) for owner in meta.owner_references] == [("TFJob", True)]
    assert "kubeflow.org" in meta.labels
    assert cluster.gang is None
    assert cluster.actions() is NO_ACTIONS


@pytest.mark.parametrize("backend", ["volcano", "coscheduling", "kubernetes"])
def test_pods_go_out_at_once_and_their_scheduler_holds_them(backend: str) -> None:
    cluster = grouped(backend)
    assert len(cluster.jobs) == 3
    assert all(job.metadata.labels["scheduling.kubeflow.org/pod-group"] == NAME for job in cluster.jobs.values())
    assert scheduled(cluster)[:2] == ("False", "WaitingForScheduler")
    assert cluster.job.status.start_time is None
    cluster.all_run()
    for pods in cluster.pods.values():
        pods[:] = [replace(pod, spec=replace(pod.spec, node_name="n1")) for pod in pods]
    cluster.settle()
    assert scheduled(cluster)[:2] == ("True", "GangScheduled")
    assert (cluster.job.status.phase, cluster.job.status.start_time is not None) == ("Running", True)


def test_the_pod_group_requests_the_minimum() -> None:
    specs = (workers(4, template=asking(cpu="1", memory="1Gi")), parameter_servers(1, template=asking(cpu="500m")))
    cluster = grouped("volcano", *specs, minWorkers=2)
    assert group_of(cluster).spec == {"minMember": 3, "minResources": {"cpu": "2500m", "memory": "2Gi"}}


def test_what_no_server_takes_is_left_to_it_to_refuse() -> None:
    assert group_of(grouped("volcano", workers(1, template=asking(cpu="-1")))).spec["minResources"] == {}


def test_kubernetes_group_is_left_alone_by_a_job_that_grows_or_has_finished_in_part() -> None:
    kubernetes = BACKENDS["kubernetes"]
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    more, fewer = ({"schedulingPolicy": {"gang": {"minCount": count}}} for count in (4, 2))
    assert [kubernetes.is_satisfied(spec, wanted) for wanted in (spec, more, fewer)] == [True, True, False]
    cluster = grouped("kubernetes", workers(3))
    cluster.all_run()
    cluster.exits("worker-2", 0, phase="Succeeded")
    cluster.settle()
    assert group_of(cluster).spec == spec


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_goes_while_the_job_is_suspended_and_when_it_is_over(backend: str) -> None:
    cluster = grouped(backend)
    cluster.change(suspend=True)
    cluster.settle()
    assert cluster.pod_group is None
    assert cluster.job.status.reason == "Suspended: spec.suspend is true"
    cluster.change(suspend=False)
    cluster.settle()
    says(cluster, conditions=[condition("Admitted", "True")])
    cluster.all_run()
    cluster.exits("master-0", 0, phase="Succeeded")
    cluster.settle()
    assert cluster.pod_group is None
    assert cluster.job.status.phase == "Done"


def test_a_job_of_which_nothing_is_left_to_stop_takes_its_group_along() -> None:
    cluster = grouped("volcano", workers(1))
    cluster.all_run()
    cluster.exits("worker-0", 0, phase="Succeeded")
    cluster.settle()
    assert (cluster.job.status.phase, cluster.pod_group) == ("Done", None)


def test_a_job_is_cleaned_up_also_when_somebody_has_deleted_its_group() -> None:
    cluster = grouped("volcano")
    cluster.all_run()
    cluster.exits("master-0", 0, phase="Succeeded")
    cluster.sync()
    assert cluster.job.status.phase == "CleanUp"
    cluster.pod_group = None
    cluster.settle()
    assert (cluster.job.status.phase, cluster.pod_group) == ("Done", None)


def test_a_job_that_is_suspended_from_birth_has_nothing() -> None:
    cluster = world(gang={"enabled": True}, suspend=True)
    cluster.gangs = policy("kueue")
    cluster.settle()
    assert (cluster.pod_group, cluster.jobs, cluster.services) == (None, {}, {})


@pytest.mark.parametrize(("on_timeout", "phase"), [("Fail", "Failed"), ("Wait", "Creating")])
def test_a_job_that_waited_too_long_follows_its_timeout_policy(on_timeout: str, phase: str) -> None:
    cluster = grouped("volcano", timeoutSeconds=60, onTimeout=on_timeout)
    says(cluster, phase="Pending")
    assert scheduled(cluster)[2].startswith("the queue has not admitted it yet; ")
    cluster.advance(61)
    cluster.settle()
    assert cluster.job.status.phase == phase
    assert scheduled(cluster)[1] == "TimedOut"
    assert (cluster.pod_group is None) == (phase == "Failed")


def test_what_is_started_again_alone_is_no_gang_that_waits() -> None:
    cluster = grouped("coscheduling", workers(2))
    cluster.all_run()
    for pods in cluster.pods.values():
        pods[:] = [replace(pod, spec=replace(pod.spec, node_name="n1")) for pod in pods]
    cluster.settle()
    cluster.pods[cluster.name("worker-1")] = []
    cluster.settle()
    assert scheduled(cluster)[:2] == ("True", "GangScheduled")


def test_where_the_group_says_nothing_its_first_pod_does() -> None:
    cluster = grouped("coscheduling", workers(2))
    why = Condition("PodScheduled", "False", "Unschedulable", "0/2 nodes are available: 2 Insufficient cpu.")
    cluster.pod("worker-0", phase="Pending", conditions=(why,))
    cluster.settle()
    assert scheduled(cluster) == ("False", "WaitingForCapacity", why.message)
    assert isinstance(cluster.pods[cluster.name("worker-0")][0].status, PodStatus)


# Kueue


def admitted(**gang: Any) -> World:
    cluster = grouped("kueue", **gang)
    says(cluster, conditions=[condition("QuotaReserved", "True"), condition("Admitted", "True")])
    cluster.all_run()
    cluster.settle()
    return cluster


def test_nothing_exists_before_kueue_has_admitted_the_job() -> None:
    cluster = grouped("kueue")
    assert (cluster.jobs, cluster.services) == ({}, {})
    assert "kueue.x-k8s.io/queue-name" in cluster.job.status.reason
    assert "Suspended" not in {each.type for each in cluster.job.status.conditions}
    says(cluster, conditions=[condition("Admitted", "True")])
    assert len(cluster.jobs) == 3


def test_an_admitted_job_says_what_its_pods_wait_for() -> None:
    cluster = grouped("kueue")
    says(cluster, conditions=[condition("QuotaReserved", "True"), condition("Admitted", "True")])
    assert scheduled(cluster) == (
        "False",
        "WaitingForCapacity",
        f"Workload {NAME} is admitted, and its pods wait for nodes",
    )
    cluster.all_run()
    for pods in cluster.pods.values():
        pods[:] = [unschedulable(pod) for pod in pods]
    cluster.settle()
    assert scheduled(cluster) == ("False", "WaitingForCapacity", "0/3 nodes are available: Insufficient cpu")


def unschedulable(pod: Pod) -> Pod:
    message = "0/3 nodes are available: Insufficient cpu"
    why = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
    return replace(pod, spec=replace(pod.spec, node_name=""), status=replace(pod.status, conditions=(why,)))


def test_a_job_that_kueue_evicts_is_stopped_and_queues_again_once_its_pods_are_gone() -> None:
    cluster = admitted()
    cluster.stops_slowly = True
    uid = group_of(cluster).metadata.uid
    says(cluster, conditions=[condition("Admitted", "False"), condition("Evicted", "True", "Preempted")])
    assert all(job.spec.suspend for job in cluster.jobs.values())
    assert (group_of(cluster).metadata.uid, scheduled(cluster)[0]) == (uid, "False")
    cluster.pods.clear()
    cluster.settle()
    assert group_of(cluster).metadata.uid != uid
    says(cluster, conditions=[condition("Admitted", "True")])
    assert not any(job.spec.suspend for job in cluster.jobs.values())
    assert cluster.job.status.restarts == 0


def test_what_somebody_has_stopped_in_kueue_does_not_queue_again() -> None:
    cluster = admitted()
    uid = group_of(cluster).metadata.uid
    cluster.pod_group = replace(group_of(cluster), spec={**group_of(cluster).spec, "active": False})
    says(cluster, conditions=[condition("Evicted", "True")])
    assert group_of(cluster).metadata.uid == uid
    assert "spec.active" in cluster.job.status.reason


def test_the_jobs_own_priority_is_the_workloads() -> None:
    assert group_of(grouped("kueue", priority=7)).spec["priority"] == 7


def test_kueue_may_complete_a_workload_as_it_likes() -> None:
    kueue = BACKENDS["kueue"]
    spec = {"queueName": "q", "podSets": [{"name": "worker", "count": 2, "template": {"spec": {}}}]}
    other = {"queueName": "q", "podSets": [{"name": "worker", "count": 2, "template": {"spec": {"containers": []}}}]}
    assert kueue.is_satisfied(other, spec)
    assert not kueue.is_satisfied({**other, "podSets": [{"name": "worker", "count": 3}]}, spec)


# TrainJobs


def in_steps(backend: str) -> World:
    cluster = world_in_steps(gang={"enabled": True})
    cluster.gangs = policy(backend)
    cluster.settle()
    return cluster


def test_initializers_run_before_there_is_a_group_and_the_exporter_after_it() -> None:
    cluster = in_steps("volcano")
    assert (jobs(cluster), cluster.pod_group) == (INITIALIZERS, None)
    ends(cluster, *INITIALIZERS)
    cluster.settle()
    assert jobs(cluster) == [*NODES, *INITIALIZERS]
    assert group_of(cluster).spec["minMember"] == 2
    ends(cluster, *NODES)
    cluster.settle()
    assert cluster.pod_group is None
    ends(cluster, "model-exporter-0")
    cluster.settle()
    assert cluster.job.status.state == "SUCCESS"


def test_kueue_holds_the_initializers_too() -> None:
    cluster = in_steps("kueue")
    assert jobs(cluster) == []
    says(cluster, conditions=[condition("Admitted", "True")])
    assert jobs(cluster) == INITIALIZERS


def test_a_label_for_all_children_does_not_put_each_of_them_into_a_queue() -> None:
    cluster = train_world(labels={"kueue.x-k8s.io/queue-name": "research", "team": "vision"})
    cluster.settle()
    for job in cluster.jobs.values():
        assert job.metadata.labels["team"] == "vision"
        assert "kueue.x-k8s.io/queue-name" not in job.metadata.labels
