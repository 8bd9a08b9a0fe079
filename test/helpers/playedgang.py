"""The Gang of a TFJob on a real API server, for tests that act as the gang scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helpers.cluster import bind_pod
from helpers.playground import Trial
from helpers.poll import PATIENCE_SECONDS, eventually
from localcluster.fakekubelet import DEFAULT_NODES

Object = dict[str, Any]

NODE = DEFAULT_NODES[0]
PREFIX = "scheduling.kubeflow.org/"


@dataclass(frozen=True, slots=True)
class GangOf:
    """The Gang of a trial's job, and methods that schedule it."""

    trial: Trial

    @property
    def path(self) -> str:
        group = f"/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{self.trial.namespace}/gangs"
        return f"{group}/{self.trial.name}-{self.trial.runtime_id}"

    def get(self) -> Object:
        return eventually(lambda: self.trial.jobs.api.find(self.path), PATIENCE_SECONDS) or {}

    def says(self, phase: str, **status: Any) -> None:
        self.get()
        self.trial.jobs.api.patch(f"{self.path}/status", {"status": {"phase": phase, **status}})

    def admit(self, attempt: int = 1, node: str = NODE) -> None:
        members = [
            f"{each['name']}-{index}" for each in self.get()["spec"]["members"] for index in range(each["count"])
        ]
        placement = [{"node": node, "members": members}]
        self.says("Admitted", attempt=attempt, placement=placement, position=0, message="")

    def bound(self) -> None:
        self.admit()
        self.bind_all()
        self.says("Bound")

    def bind_all(self) -> None:
        """Binds pods until every member has a pod on the node."""
        members = sum(each["count"] for each in self.get()["spec"]["members"])

        def done() -> bool:
            self.bind()
            pods = self.trial.children("pods").values()
            return sum(bool(pod["spec"].get("nodeName")) for pod in pods) >= members

        eventually(done, PATIENCE_SECONDS)

    def wishes(self, target: int, *leaving: str, reason: str) -> None:
        wish = {"targetMembers": {"worker": target}, "leaving": list(leaving), "targetReason": reason}
        self.says("Bound", **wish, observedGeneration=self.get()["metadata"]["generation"])

    def follows(self, *workers: int) -> None:
        """Waits until the owner requests these workers, and reports them as placed and bound."""
        eventually(lambda: self.count() == len(workers), PATIENCE_SECONDS)
        members = ["master-0", *(f"worker-{index}" for index in workers)]
        placement = [{"node": NODE, "members": members}]
        self.says("Bound", placement=placement, targetMembers=None, leaving=None, targetReason=None)

    def count(self) -> int:
        return next(int(each["count"]) for each in self.get()["spec"]["members"] if each["name"] == "worker")

    def back_to_the_queue(self) -> None:
        self.says("Waiting", placement=[], message="a member was not created", position=1)

    def bind(self) -> None:
        """Binds all pods to the node, as kube-scheduler and the extender do."""
        for name, pod in self.trial.children("pods").items():
            if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                bind_pod(self.trial.jobs.api, self.trial.namespace, name, NODE)
