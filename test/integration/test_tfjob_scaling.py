"""Changes of the number of workers on a real API server: by `kubectl scale`, an HPA, and the autoscaler.

The test acts as the gang scheduler.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import Jobs, running_controller
from helpers.controllerprocess import controller_process
from helpers.kubectl import Kubectl
from helpers.manifests import master, parameter_servers, workers
from helpers.playedgang import GangOf
from helpers.playground import PATIENCE_SECONDS, Playground, Script, Trial, condition
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

BOUNDS = {"minWorkers": 1, "maxWorkers": 6}
WHY = "capacity for default/b, waiting 31 s"


@pytest.fixture(scope="module")
def resizer(control_plane: Cluster, administrator: Kubectl) -> Iterator[Playground]:
    """A controller that does what gang schedulers wish, and a kubelet, in a namespace of their own."""
    with _playing(control_plane, "resizer", "on") as playground:
        yield playground


@pytest.fixture
def autoscaled(resizer: Playground) -> Iterator[Trial]:
    trial = resizer.new_trial()
    yield trial
    trial.clear()


@contextlib.contextmanager
def _playing(cluster: Cluster, prefix: str, autoscaling: str) -> Iterator[Playground]:
    namespace, script = new_namespace(cluster.api, prefix), Script()
    kubelet = FakeKubelet(Api.from_kubeconfig(cluster.own.kubeconfig), namespace=namespace, behaviour=script)
    with kubelet, running_controller(cluster.kubeconfig, namespace, autoscaling=autoscaling) as manager:
        yield Playground(manager, Jobs(cluster.api, namespace), script)
    delete_namespace(cluster.api, namespace)


def indexes(trial: Trial) -> list[int]:
    """Of the workers that have a Job which stays."""
    return sorted(
        int(job["metadata"]["labels"]["task_index"])
        for job in trial.children("jobs").values()
        if job["metadata"]["labels"]["job_type"] == "WORKER" and "deletionTimestamp" not in job["metadata"]
    )


def await_workers(trial: Trial, *wanted: int) -> None:
    """Those have Jobs, and of the others not even a Service is left."""

    def settled() -> bool:
        names = {trial.child(f"worker-{index}") for index in wanted}
        of_workers = {name for name in trial.children("services") if "-worker-" in name}
        return indexes(trial) == list(wanted) and of_workers == names

    eventually(settled)


def await_resized(trial: Trial, words: str) -> None:
    """The event and the condition say so, and it is over."""
    trial.await_event("Resized", words)
    trial.await_status(
        lambda status: (
            condition(status, "Resizing")["status"] == "False" and condition(status, "Resizing")["message"] == words
        )
    )


def uids(trial: Trial) -> dict[str, str]:
    return {name: job["metadata"]["uid"] for name, job in trial.children("jobs").items()}


def told(trial: Trial, replica: str) -> Object:
    (each,) = trial.child_job(replica)["spec"]["template"]["spec"]["containers"]
    config = next(variable["value"] for variable in each["env"] if variable["name"] == "TF_CONFIG")
    found: Object = json.loads(config)["cluster"]
    return found


def kubectl_of(trial: Trial, administrator: Kubectl) -> Kubectl:
    return Kubectl(administrator.kubeconfig, administrator.cache, trial.namespace)


# kubectl scale


def test_kubectl_scale_adds_and_takes_workers_while_nobody_else_notices(trial: Trial, administrator: Kubectl) -> None:
    trial.submit(master(), workers(2), parameter_servers(1), autoscaling=BOUNDS)
    trial.await_phase("Running")
    await_workers(trial, 0, 1)
    before = uids(trial)
    assert len(told(trial, "ps-0")["worker"]) == 6
    kubectl = kubectl_of(trial, administrator)
    kubectl.must("scale", f"tfjob/{trial.name}", "--replicas=4")
    await_workers(trial, 0, 1, 2, 3)
    await_resized(trial, "scaled 2 → 4 workers by spec.workerReplicas")
    assert uids(trial).items() >= before.items()
    trial.await_running("worker-3")
    kubectl.must("scale", f"tfjob/{trial.name}", "--replicas=1")
    await_workers(trial, 0)
    await_resized(trial, "scaled 4 → 1 workers by spec.workerReplicas")
    assert before.items() >= uids(trial).items()
    trial.await_status(lambda status: status.get("workerReplicas") == 1 and status["ready"]["worker"] == "1/1")
    assert trial.status().get("restarts", 0) == 0


# HorizontalPodAutoscaler


def scale_of(trial: Trial) -> Object:
    return trial.jobs.api.get(f"{trial.jobs.path}/{trial.name}/scale")


def test_a_horizontal_pod_autoscaler_reads_what_it_needs(trial: Trial) -> None:
    """spec.replicas, status.replicas, and a selector of the workers' pods and no others: its controller's reads."""
    trial.submit(master(), workers(1), parameter_servers(1), workerReplicas=3, autoscaling=BOUNDS)
    for index in range(3):
        trial.await_running(f"worker-{index}")
    trial.await_status(lambda status: status.get("workerReplicas") == 3)
    scale = scale_of(trial)
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
    pods = trial.jobs.api.list(f"/api/v1/namespaces/{trial.namespace}/pods", scale["status"]["selector"])
    assert sorted(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] for pod in pods) == [
        trial.child(f"worker-{index}") for index in range(3)
    ]


def test_a_real_horizontal_pod_autoscaler_scales_the_job(trial: Trial) -> None:
    """It needs no metrics for that: there are fewer workers than its least."""
    trial.submit(master(), workers(1), workerReplicas=1, autoscaling=BOUNDS)
    trial.await_phase("Running")
    target = {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "name": trial.name}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": trial.name},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": 3,
            "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }
    path = f"/apis/autoscaling/v2/namespaces/{trial.namespace}/horizontalpodautoscalers"
    trial.jobs.api.create(path, hpa)
    # It looks every 15 s, and learns of new kinds every 30 s.
    eventually(lambda: trial.notes("Resized"), 3 * PATIENCE_SECONDS)
    trial.await_event("Resized", "scaled 1 → 3 workers by spec.workerReplicas")
    await_workers(trial, 0, 1, 2)
    eventually(lambda: trial.jobs.api.get(f"{path}/{trial.name}")["status"].get("desiredReplicas") == 3)
    trial.jobs.api.delete(f"{path}/{trial.name}")


# Restart


def generations(trial: Trial) -> set[str]:
    return {job["metadata"]["labels"]["kubeflow.org/generation"] for job in trial.children("jobs").values()}


def test_with_restart_all_replicas_get_the_new_tf_config_and_no_service_is_touched(trial: Trial) -> None:
    trial.submit(master(), workers(2), autoscaling={**BOUNDS, "resize": "Restart"}, backoffLimit=0)
    trial.await_phase("Running")
    trial.await_running("worker-1")
    before = uids(trial)
    services = {name: each["metadata"]["uid"] for name, each in trial.children("services").items()}
    assert len(told(trial, "master-0")["worker"]) == 2
    trial.change(workerReplicas=3)
    await_resized(trial, "scaled 2 → 3 workers by spec.workerReplicas")
    await_workers(trial, 0, 1, 2)
    after = uids(trial)
    assert not set(before.values()) & set(after.values())
    assert generations(trial) == {"1"}
    for replica in ("master-0", "worker-0", "worker-2"):
        assert len(told(trial, replica)["worker"]) == 3
        trial.await_running(replica)
    present = {name: each["metadata"]["uid"] for name, each in trial.children("services").items()}
    assert present.items() >= services.items()
    assert trial.status()["phase"] == "Running"
    assert trial.status().get("restarts", 0) == 0


# The autoscaler


def bound_job(trial: Trial, count: int = 4, **autoscaling: Any) -> GangOf:
    """A job of a master and workers that runs as a gang."""
    gang = GangOf(trial)
    trial.submit(
        master(), workers(1), workerReplicas=count, gang={"enabled": True}, autoscaling={**BOUNDS, **autoscaling}
    )
    gang.bound()
    trial.await_phase("Running")
    for index in range(count):
        trial.await_running(f"worker-{index}")
    return gang


def test_the_workers_that_the_gang_scheduler_names_leave_and_come_again(autoscaled: Trial) -> None:
    gang = bound_job(autoscaled)
    spec = gang.get()["spec"]
    assert (spec["minMembers"], spec["maxMembers"]) == ({"worker": 1}, {"worker": 6})
    before = uids(autoscaled)
    gang.wishes(3, "worker-1", reason=WHY)
    gang.follows(0, 2, 3)
    await_workers(autoscaled, 0, 2, 3)
    await_resized(autoscaled, f"shrunk 4 → 3 workers: {WHY}")
    assert autoscaled.get()["spec"]["workerReplicas"] == 3
    assert before.items() >= uids(autoscaled).items()
    gang.wishes(4, reason="the cluster has free capacity")
    gang.follows(0, 1, 2, 3)
    gang.bind_all()
    await_workers(autoscaled, 0, 1, 2, 3)
    await_resized(autoscaled, "grown 3 → 4 workers: the cluster has free capacity")
    assert autoscaled.notes("AutoscalerOverridden") == []


@pytest.mark.parametrize("resize", ["InPlace", "Restart"])
def test_a_controller_that_is_killed_in_the_middle_goes_on_where_it_was(
    control_plane: Cluster, administrator: Kubectl, tmp_path: Path, resize: str
) -> None:
    """Killed at the first sign of the resize: then it stands on record, and some or none of it is done."""
    namespace, script = new_namespace(control_plane.api, "killed"), Script()
    kubelet = FakeKubelet(Api.from_kubeconfig(control_plane.own.kubeconfig), namespace=namespace, behaviour=script)
    log, flags = tmp_path / "log", ("--autoscaling=on",)
    playground = Playground(None, Jobs(control_plane.api, namespace), script)  # type: ignore[arg-type]  # a process
    trial = playground.new_trial()
    with kubelet, controller_process(control_plane.kubeconfig, namespace, log, *flags) as first:
        gang = bound_job(trial, 4, resize=resize)
        before = uids(trial)
        gang.wishes(2, "worker-1", "worker-2", reason=WHY)
        eventually(lambda: trial.status().get("scaling", {}).get("target") or gang.count() == 2, PATIENCE_SECONDS, 0.01)
        first.kill()
        with controller_process(control_plane.kubeconfig, namespace, log, *flags):
            gang.follows(0, 3)
            if resize == "InPlace":
                await_workers(trial, 0, 3)
                assert before.items() >= uids(trial).items()
            else:
                await_workers(trial, 0, 1)
                eventually(lambda: not set(before.values()) & set(uids(trial).values()))
            gang.bind_all()
            # Not the event: it follows the status, and the kill may come between the two.
            status = trial.await_status(lambda status: condition(status, "Resizing")["status"] == "False")
            assert condition(status, "Resizing")["message"] == f"shrunk 4 → 2 workers: {WHY}"
            assert status.get("restarts", 0) == 0
    delete_namespace(control_plane.api, namespace)
