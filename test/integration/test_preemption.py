"""Preemption of whole gangs on a real API server, beside a real kube-scheduler, with an owner of another kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.gangowner import GANGS, SMALL, Owner, pod
from helpers.gangscheduler import running_schedulers
from helpers.kubeflowjobs import KubeflowCluster, KubeflowTrial, kubeflow_cluster
from helpers.manifests import gang_job
from helpers.poll import eventually
from localcluster.api import Api, RefusedError
from localcluster.fakekubelet import FakeKubelet
from tfjob_controller.gangscheduler.status.preempted import DELETION_SECONDS
from tfjob_controller.util.timestamps import format_time

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
URGENT = "test-preemption-urgent"
NODES = ("node-a", "node-b")
PODS = "/api/v1/namespaces/gangs/pods"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"

Object = dict[str, Any]


@pytest.fixture
def preempting(gang_cluster: Cluster) -> Iterator[Cluster]:
    """The gang scheduler and its kube-scheduler, with preemption after a second."""
    api = gang_cluster.api
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": URGENT}, "value": 1000}
    api.create_if_missing(CLASSES, body)
    options = {"preemption": "on", "preempt_after": 1.0, "preemption_grace": 1.0}
    try:
        with running_schedulers(gang_cluster, **options):
            yield gang_cluster
    finally:
        api.delete(f"{CLASSES}/{URGENT}")


@pytest.fixture
def owner(preempting: Cluster) -> Owner:
    admit_a_pod(preempting.api)
    return Owner(preempting.api, "gangs")


def urgent_pod(name: str) -> Object:
    body = pod(name, "0", scheduler="nobody")
    return {**body, "spec": {**body["spec"], "priorityClassName": URGENT}}


def admit_a_pod(api: Api) -> None:
    """Creates a pod of the class, by which the class counts in the namespace."""

    def is_admitted() -> bool:
        try:
            api.create_if_missing(PODS, urgent_pod("once"))
        except RefusedError:
            # The API server does not know the class yet.
            return False
        return True

    eventually(is_admitted)


def run(owner: Owner, name: str, workers: int, **more: int | str) -> None:
    owner.submit(name, worker=workers, **more)
    owner.await_phase(name, "Admitted")
    owner.make_pods(name)
    owner.await_phase(name, "Bound")


def await_state(owner: Owner, name: str, state: str) -> dict[str, str]:
    def found() -> dict[str, str] | None:
        preemption: dict[str, str] = owner.status(name).get("preemption") or {}
        return preemption if preemption.get("state") == state else None

    return eventually(found) or {}


def test_a_whole_gang_leaves_for_one_of_higher_priority_and_runs_again_afterwards(
    owner: Owner, preempting: Cluster
) -> None:
    """It leaves for none that claims a priority without a class: any tenant can write that into a Gang."""
    run(owner, "low", 8)
    queued = owner.status("low")["queuedTime"]
    owner.submit("claims", worker=4, priority=2_000_000_000)
    owner.await_phase("claims", "Waiting")
    owner.submit("high", worker=4, priority=1000, priority_class=URGENT)
    assert await_state(owner, "low", "Requested")["by"] == "gangs/high"
    assert owner.status("low")["phase"] == "Bound"
    owner.remove("claims")
    assert "preempts" in eventually(lambda: owner.status("high").get("message"))
    pods = owner.nodes("low")
    for member in pods:
        assert owner.status("high")["phase"] == "Waiting"
        preempting.api.delete(f"/api/v1/namespaces/gangs/pods/low-{member}-1")
    status = owner.await_phase("low", "Waiting")
    assert (status["preemption"]["state"], status["queuedTime"]) == ("Preempted", queued)
    owner.await_phase("high", "Admitted")
    owner.make_pods("high")
    owner.await_phase("high", "Bound")
    assert owner.status("low")["phase"] == "Waiting"
    owner.remove("high")
    status = owner.await_phase("low", "Admitted")
    assert status["attempt"] == 2
    assert "preemption" not in status
    owner.make_pods("low")
    owner.await_phase("low", "Bound")
    eventually(lambda: {"PreemptionRequested", "Preempted"} <= owner.reasons("low"))
    eventually(lambda: "Preempting" in owner.reasons("high"))


def test_the_pods_of_an_owner_that_does_not_follow_are_evicted(owner: Owner, preempting: Cluster) -> None:
    """It was asked a minute ago, as its status says here at once."""
    run(owner, "low", 8)
    owner.submit("high", worker=4, priority=1000, priority_class=URGENT)
    asked = await_state(owner, "low", "Requested")
    long_ago = format_time(datetime.now(UTC) - timedelta(seconds=DELETION_SECONDS + 1))
    preemption = {"preemption": {**asked, "time": long_ago}}
    preempting.api.patch(f"{GANGS.format('gangs')}/low/status", {"status": preemption})
    status = owner.await_phase("low", "Waiting")
    assert status["preemption"]["state"] == "Preempted"
    assert owner.nodes("low") == {}
    owner.await_phase("high", "Admitted")
    eventually(lambda: "PreemptionEnforced" in owner.reasons("low"))


@pytest.fixture
def forbidden_class(preempting: Cluster) -> Iterator[Callable[[], None]]:
    """A policy allows the namespace no pod of the class; the value ends it."""
    api, name = preempting.api, {"name": "test-preemption-classes"}
    of_pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    rule = f"object.spec.?priorityClassName.orValue('') != '{URGENT}'"
    spec = {"matchConstraints": {"resourceRules": [of_pods]}, "validations": [{"expression": rule}]}
    of_namespace = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gangs"}}}
    bound = {"policyName": name["name"], "validationActions": ["Deny"], "matchResources": of_namespace}
    api.create(f"{ADMISSION}/validatingadmissionpolicies", {"metadata": name, "spec": spec})
    api.create(f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": name, "spec": bound})

    def is_refused() -> bool:
        try:
            api.request("POST", PODS, urgent_pod("refused"), query={"dryRun": "All"})
        except RefusedError as error:
            return name["name"] in str(error)
        return False

    def end() -> None:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            api.delete(f"{ADMISSION}/{kind}/{name['name']}")

    try:
        eventually(is_refused)
        yield end
    finally:
        end()


def test_a_class_that_a_policy_forbids_to_the_pods_of_a_namespace_preempts_nobody(
    preempting: Cluster, forbidden_class: Callable[[], None]
) -> None:
    """A Gang may name it, for policies and quotas judge pods."""
    owner = Owner(preempting.api, "gangs")
    run(owner, "low", 8)
    owner.submit("high", worker=4, priority=1000, priority_class=URGENT)
    refusal = f"preempts no gang before a pod of its namespace was admitted with the PriorityClass {URGENT}"
    eventually(lambda: refusal in owner.status("high").get("message", ""))
    assert "preemption" not in owner.status("low")
    forbidden_class()
    admit_a_pod(preempting.api)
    assert await_state(owner, "low", "Requested")["by"] == "gangs/high"


def test_of_equal_gangs_the_one_with_the_younger_checkpoint_leaves(owner: Owner, preempting: Cluster) -> None:
    """Without checkpoints the one that was bound last would leave."""
    run(owner, "saved", 4)
    run(owner, "unsaved", 4)
    # Times of the status have microseconds, this one seconds: it is later in any case.
    soon = format_time(datetime.now(UTC) + timedelta(seconds=2))
    saved = {"metadata": {"annotations": {"scheduling.kubeflow.org/checkpoint-time": soon}}}
    preempting.api.patch(f"{GANGS.format('gangs')}/saved", saved)
    owner.submit("high", worker=4, priority=1000, priority_class=URGENT)
    assert await_state(owner, "saved", "Requested")["by"] == "gangs/high"
    assert "preemption" not in owner.status("unsaved")


@pytest.fixture
def jobs(preempting: Cluster) -> Iterator[Jobs]:
    """The controller and simulated kubelets on both nodes."""
    admit_a_pod(preempting.api)
    kubelets = FakeKubelet(Api.from_kubeconfig(preempting.kubeconfig), namespace="gangs", nodes=NODES, resources=SMALL)
    with kubelets, running_controller(preempting.kubeconfig, "gangs"):
        jobs = Jobs(preempting.api, "gangs")
        yield jobs
        for job in jobs.all():
            jobs.delete(job["metadata"]["name"])


def conditions(jobs: Jobs, name: str) -> dict[str, str]:
    return {each["type"]: each["status"] for each in jobs.status(name).get("conditions", ())}


def test_a_tfjob_leaves_as_a_whole_for_an_urgent_one_and_runs_again_without_a_restart(jobs: Jobs) -> None:
    jobs.submit(gang_job("low", 7))
    jobs.await_phase("Running", "low", 30)
    urgent = gang_job("urgent", 3, priority=1000)
    urgent["spec"]["priorityClassName"] = URGENT
    jobs.submit(urgent)
    eventually(lambda: conditions(jobs, "low").get("Preempted") == "True")
    jobs.await_phase("Running", "urgent", 40)
    running = [pod["metadata"]["labels"]["tf_job_name"] for pod in jobs.children("pods").values()]
    assert set(running) == {"urgent"}
    assert "preempted by gangs/urgent" in jobs.status("low")["reason"]
    jobs.end_replica("master", job="urgent")
    jobs.await_phase("Done", "urgent", 40)
    jobs.await_phase("Running", "low", 40)
    assert conditions(jobs, "low")["Preempted"] == "False"
    assert jobs.status("low").get("restarts", 0) == 0
    jobs.end_replica("master", job="low")
    assert jobs.await_phase("Done", "low", 40)["state"] == "Succeeded"


@pytest.fixture
def kubeflow(preempting: Cluster) -> Iterator[KubeflowCluster]:
    """Kubeflow's TrainJobs in a namespace of their own, all of them gangs."""
    with kubeflow_cluster(preempting, nodes=NODES, resources=SMALL, gang_scheduling="always") as cluster:
        yield cluster


def test_a_trainjob_of_kubeflow_leaves_as_a_whole_and_runs_again_without_a_restart(
    kubeflow: KubeflowCluster, owner: Owner
) -> None:
    requests = {"resourcesPerNode": {"requests": {"cpu": "1"}}}
    low = kubeflow.submit(trainer={"numNodes": 8, "command": ["torchrun", "train.py"], **requests})
    before = {pod["metadata"]["uid"] for pod in low.await_pods(8)}
    owner.submit("high", worker=4, priority=1000, priority_class=URGENT)
    owner.await_phase("high", "Admitted")
    # The Job controller may have begun to replace a pod before its Job was suspended.
    assert [name for name, pod in low.children("pods").items() if pod["spec"].get("nodeName")] == []
    owner.make_pods("high")
    owner.await_phase("high", "Bound")
    gang = only_gang(low)
    assert gang["status"]["phase"] == "Waiting"
    assert {each["type"]: each["status"] for each in gang["status"]["conditions"]}["Preempted"] == "True"
    owner.remove("high")
    assert not before & {pod["metadata"]["uid"] for pod in low.await_pods(8)}
    assert low.await_job()["metadata"]["labels"]["kubeflow.org/generation"] == "0"
    # The SDK takes any condition as a sign that the job does not run.
    assert low.conditions() == {}


def only_gang(trial: KubeflowTrial) -> dict[str, Any]:
    (gang,) = trial.jobs.api.list(GANGS.format(trial.namespace))
    return dict(gang)
