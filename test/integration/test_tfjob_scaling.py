"""Changes of the number of workers on a real API server: by `kubectl scale` and an HPA, in place and with a restart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.kubectl import Kubectl
from helpers.manifests import master, parameter_servers, workers
from helpers.playground import Trial, condition
from helpers.poll import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

BOUNDS = {"minWorkers": 1, "maxWorkers": 6}


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
