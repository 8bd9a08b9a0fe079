"""A simple owner of gangs that shares no code with the controller, and its pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.poll import until
from localcluster.api import Api
from localcluster.gangscheduler import NAME
from tfjob_controller.api.gang import member_of
from tfjob_controller.kube.meta import ObjectMeta

GANGS = "/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{}/gangs"
# A node that takes four pods of one CPU.
SMALL = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "8Gi", "pods": "20"}

Object = dict[str, Any]


class Owner:
    """A simple owner of gangs: writes the Gang, and creates its pods once it is admitted."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def submit(self, name: str, cpu: str = "1", priority: int = 0, priority_class: str = "", **members: int) -> None:
        spec = {
            "priority": priority,
            "members": [
                {"name": kind, "count": count, "resources": {"cpu": cpu}, "priorityClassName": priority_class}
                for kind, count in members.items()
            ],
        }
        body = {"apiVersion": "scheduling.kubeflow.org/v1alpha1", "kind": "Gang", "metadata": {"name": name}}
        self._api.create(GANGS.format(self._namespace), {**body, "spec": spec})

    def status(self, name: str) -> Object:
        found: Object = self._api.get(f"{GANGS.format(self._namespace)}/{name}").get("status", {})
        return found

    def await_phase(self, name: str, phase: str, timeout: float = 20.0) -> Object:
        """Waits until the gang is in the phase; returns its status."""
        return until(lambda: self.status(name), lambda status: status.get("phase") == phase, timeout, 0.05)

    def make_pods(self, name: str, cpu: str = "1", skip: frozenset[str] = frozenset()) -> None:
        status = self.status(name)
        for place in status["placement"]:
            for member in place["members"]:
                if member not in skip:
                    self.make_pod(name, member, status["attempt"], cpu)

    def make_pod(self, name: str, member: str, attempt: int, cpu: str = "1") -> None:
        prefix = "scheduling.kubeflow.org"
        labels = {f"{prefix}/gang": name, f"{prefix}/member": member, f"{prefix}/attempt": str(attempt)}
        self._api.create(
            f"/api/v1/namespaces/{self._namespace}/pods", pod(f"{name}-{member}-{attempt}", cpu, labels, NAME)
        )

    def remove(self, name: str) -> None:
        """Deletes the gang and all of its pods."""
        self._api.delete(f"{GANGS.format(self._namespace)}/{name}")
        for each in self._pods(name):
            self._api.delete(f"/api/v1/namespaces/{self._namespace}/pods/{each['metadata']['name']}")

    def nodes(self, name: str) -> Mapping[str, str]:
        """Returns the node of each of the gang's pods, by member; empty for a pod without a node."""
        return {
            member_of(ObjectMeta(labels=each["metadata"]["labels"])): each["spec"].get("nodeName", "")
            for each in self._pods(name)
        }

    def reasons(self, name: str) -> set[str]:
        """Returns the reasons of the gang's events."""
        events = self._api.list(f"/apis/events.k8s.io/v1/namespaces/{self._namespace}/events")
        return {each["reason"] for each in events if each["regarding"]["name"] == name}

    def _pods(self, name: str) -> list[Object]:
        return self._api.list(f"/api/v1/namespaces/{self._namespace}/pods", f"scheduling.kubeflow.org/gang={name}")


def pod(name: str, cpu: str, labels: Mapping[str, str] | None = None, scheduler: str = "default-scheduler") -> Object:
    container = {"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec}
