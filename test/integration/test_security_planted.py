"""Objects that an attacker creates beside a job, with labels, names and owners as its children have. The attacker may
create pods in the namespace anyway, but must not make the controller count, stop or delete objects that do not belong
to the job.
"""

from __future__ import annotations

from typing import Any

import pytest

from helpers.cluster import set_pod_terminated
from helpers.manifests import container, master, pod_template, workers
from helpers.playground import NOBODYS_NODE, Trial
from helpers.poll import eventually
from tfjob_controller.jobs.naming import POD_JOB_NAME

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

NEVER = pod_template(container(), restartPolicy="Never")


def labels_of(trial: Trial, replica: str) -> dict[str, str]:
    """All that the Job of that replica carries, and what its pods carry besides."""
    job = trial.child(replica)
    eventually(lambda: job in trial.children("jobs"))
    labels: dict[str, str] = trial.child_job(replica)["metadata"]["labels"]
    return labels


def plant(trial: Trial, plural: str, name: str, labels: dict[str, str], spec: Object, **metadata: Any) -> Object:
    kind = {"pods": "Pod", "jobs": "Job", "services": "Service"}[plural]
    body = {"apiVersion": "batch/v1" if plural == "jobs" else "v1", "kind": kind, "spec": spec}
    body["metadata"] = {"name": name, "labels": labels, **metadata}
    return trial.jobs.api.create(trial.child_path(plural, "").rstrip("/"), body)


def planted_pod(trial: Trial, replica: str, labels: dict[str, str]) -> Object:
    """One that has failed for good, and says that it is the replica's."""
    pod = {"nodeName": NOBODYS_NODE, "restartPolicy": "Never", "containers": [container()]}
    name = f"{trial.name}-planted-{replica}"
    made = plant(trial, "pods", name, {**labels, POD_JOB_NAME: trial.child(replica)}, pod)
    set_pod_terminated(trial.jobs.api, trial.namespace, name, 1, message="planted", container="tensorflow")
    return made


def foreign_owner(trial: Trial) -> Object:
    path = f"/api/v1/namespaces/{trial.namespace}/configmaps"
    made = trial.jobs.api.create(path, {"metadata": {"name": f"{trial.name}-owner"}})
    names = {name: made["metadata"][name] for name in ("name", "uid")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "controller": True, **names}


def plant_all(trial: Trial) -> list[tuple[str, Object]]:
    labels = {replica: labels_of(trial, replica) for replica in ("master-0", "worker-0")}
    job = {"suspend": True, "template": pod_template(container(), restartPolicy="Never")}
    ours, name = labels["worker-0"], f"{trial.name}-planted"
    return [
        *(("pods", planted_pod(trial, replica, labels[replica])) for replica in labels),
        ("jobs", plant(trial, "jobs", name, ours, job)),
        ("jobs", plant(trial, "jobs", f"{name}-owned", ours, job, ownerReferences=[foreign_owner(trial)])),
        ("services", plant(trial, "services", name, ours, {"ports": [{"port": 80}]})),
    ]


def are_as_planted(trial: Trial, planted: list[tuple[str, Object]]) -> bool:
    for plural, before in planted:
        now = trial.jobs.api.get(trial.child_path(plural, before["metadata"]["name"]))
        fields = [(each["metadata"]["uid"], each["metadata"]["labels"], each["spec"]) for each in (before, now)]
        if fields[0] != fields[1] or "deletionTimestamp" in now["metadata"]:
            return False
        if now["metadata"].get("ownerReferences") != before["metadata"].get("ownerReferences"):
            return False
    return True


def test_what_imitates_a_jobs_children_is_neither_counted_nor_stopped_nor_deleted(trial: Trial) -> None:
    """Through the whole life of a job that deletes all its pods at the end."""
    trial.submit(master(template=NEVER), workers(1), cleanPodPolicy="All")
    trial.await_phase("Running")
    planted = plant_all(trial)
    # A worker more makes the controller look at all of them once more.
    trial.change(workerReplicas=2)
    status = trial.await_status(lambda status: status.get("ready", {}).get("worker") == "2/2")
    assert (status["phase"], status.get("restarts", 0), status.get("reason", "")) == ("Running", 0, "")
    trial.end("master-0", 0)
    assert trial.await_end()["reason"] == "master-0 succeeded"
    own = [trial.child(replica) for replica in ("master-0", "worker-0", "worker-1")]
    planted_pods = {each["metadata"]["name"] for plural, each in planted if plural == "pods"}
    eventually(lambda: set(trial.children("pods")) == planted_pods)
    assert are_as_planted(trial, planted)
    trial.delete()
    eventually(lambda: not set(own) & set(trial.jobs.children("jobs")))
    assert are_as_planted(trial, planted)
    for plural, each in planted:
        trial.jobs.api.delete(trial.child_path(plural, each["metadata"]["name"]), gracePeriodSeconds=0)
