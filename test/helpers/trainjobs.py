"""Requests of TrainJob tests to the real API server, and ends of their pods."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from helpers.playground import Trial, condition
from helpers.poll import PATIENCE_SECONDS, eventually
from helpers.trainmanifests import runtime
from localcluster.api import Api
from localcluster.podstatus import Outcome

Object = dict[str, Any]

GROUP_PATH = "/apis/kubeflow.org/v2alpha1"
GENERATION = "kubeflow.org/generation"


def ends(exit_code: int = 0, message: str = "", *, after: float = 0.1, **more: Any) -> Outcome:
    """Returns a behaviour in which all containers of a pod end with this code."""
    return Outcome(after_seconds=after, exit_code=exit_code, message=message, **more)


def nodes(count: int) -> tuple[str, ...]:
    return tuple(f"node-{index}" for index in range(count))


def env_of(pod: Object, name: str = "node") -> dict[str, str]:
    """Returns the variables of the container of that name that have a value."""
    (container,) = [each for each in pod["spec"]["containers"] if each["name"] == name]
    return {each["name"]: each.get("value", "") for each in container.get("env", ())}


def step_of(status: Object, name: str = "node") -> Mapping[str, Any]:
    """Returns the entry of jobsStatus; empty if there is none."""
    found: Sequence[Object] = [each for each in status.get("jobsStatus", ()) if each["name"] == name]
    return found[0] if found else {}


def generations(trial: Trial, plural: str = "jobs", role: str = "node") -> dict[str, str]:
    """Returns the restart attempt of each child of that role, by name: the nodes have one Job, and a pod each."""
    found = trial.children(plural).items()
    labels = {name: each["metadata"]["labels"] for name, each in found}
    return {name: each.get(GENERATION, "") for name, each in labels.items() if each["job_type"] == role}


def await_restart(trial: Trial, restarts: int = 1, count: int = 2) -> Object:
    """Waits until all nodes of that restart attempt run; returns the status."""

    def is_up(status: Object) -> bool:
        step = step_of(status)
        is_over = condition(status, "Restarting")["status"] == "False"
        return is_over and status.get("restarts") == restarts and step.get("ready") == count

    status = trial.await_status(is_up)
    for plural, made in (("jobs", 1), ("pods", count)):
        found = generations(trial, plural)
        assert list(found.values()) == [str(restarts)] * made, found
    return status


def await_ready(trial: Trial, count: int = 2) -> Object:
    return trial.await_status(lambda status: step_of(status).get("ready") == count)


@contextmanager
def cluster_runtime(api: Api, **spec: Any) -> Iterator[str]:
    """Creates a ClusterTrainingRuntime with a name of its own."""
    path, name = f"{GROUP_PATH}/clustertrainingruntimes", f"runtime-{secrets.token_hex(4)}"
    api.create(path, runtime(name, **spec))
    try:
        yield name
    finally:
        api.delete(f"{path}/{name}")


def await_cached(trial: Trial, runtime_name: str) -> None:
    """Waits until the controller has cached the runtime, since a job that names it earlier has to wait for it."""
    informer = trial.playground.manager.jobs["trainjob"].all[2]
    eventually(lambda: informer.store.get(runtime_name) is not None)


def claim(name: str = "workspace") -> Object:
    """Returns the fields of a runtime for a shared volume."""
    return {"persistentVolumeClaim": {"claimName": name}}


def make_claim(api: Api, namespace: str) -> None:
    """Creates the PersistentVolumeClaim `workspace`, whose status is bound at once."""
    name = "workspace"
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    volume = f"{namespace}-{name}"
    size = {"storage": "1Gi"}
    access = ["ReadWriteMany"]
    reference = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    of_volume = {"capacity": size, "accessModes": access, "hostPath": {"path": "/none"}, "claimRef": reference}
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}}
    api.create_if_missing("/api/v1/persistentvolumes", {**body, "spec": {**of_volume, "storageClassName": ""}})
    wish = {"accessModes": access, "resources": {"requests": size}, "volumeName": volume, "storageClassName": ""}
    api.create_if_missing(
        path, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wish}
    )
    eventually(lambda: api.get(f"{path}/{name}").get("status", {}).get("phase") == "Bound", PATIENCE_SECONDS, 0.1)
