"""Records the changes of the pods of a namespace, and the last state of each, including deleted pods."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from helpers.poll import eventually
from helpers.trainjobs import GENERATION
from localcluster.api import Api
from localcluster.follower import Follower

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodWatch:
    """A `localcluster.follower.Reader`. The follower's thread writes; any thread may read."""

    pods: dict[str, Object] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    changes: list[tuple[str, Object]] = field(default_factory=list)

    def list_begins(self) -> None:
        """See Reader."""

    def take(self, change: str, obj: Object) -> None:
        name = obj["metadata"]["name"]
        self.pods[name] = obj
        self.changes.append((change, obj))
        if change == "DELETED":
            self.deleted.add(name)

    def list_ends(self, bookmark: Object) -> None:
        """See Reader."""

    def names(self, job_type: str) -> list[str]:
        """Returns the names of all pods of replicas of that type, sorted."""
        found = list(self.pods.items())
        return sorted(name for name, pod in found if pod["metadata"].get("labels", {}).get("job_type") == job_type)

    def exit_codes(self, name: str) -> list[int]:
        """Returns the exit codes of the containers of a pod that have ended.

        A kubelet reports them before it lets a pod be deleted.
        """
        states = [each["state"] for each in self.pods[name]["status"].get("containerStatuses", ())]
        return [state["terminated"]["exitCode"] for state in states if "terminated" in state]

    def mixed(self, runtime_id: str) -> list[str]:
        """Returns the changes after which unfinished pods of two restart attempts of a job existed."""
        unfinished: dict[str, str] = {}
        mixed = []
        for change, pod in self.changes:
            meta, labels = pod["metadata"], pod["metadata"].get("labels") or {}
            if labels.get("runtime_id") != runtime_id:
                continue
            if change == "DELETED" or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                unfinished.pop(meta["uid"], None)
            else:
                unfinished[meta["uid"]] = labels.get(GENERATION, "")
            if len(set(unfinished.values())) > 1:
                mixed.append(f"{change} {meta['name']}: {sorted(unfinished.values())}")
        return mixed


@contextlib.contextmanager
def watching_pods(api: Api, namespace: str) -> Iterator[PodWatch]:
    """Starts a watch, which works when the block begins."""
    seen = PodWatch()
    follower = Follower(api, f"/api/v1/namespaces/{namespace}/pods", seen)
    follower.start()
    try:
        eventually(follower.is_listed.is_set)
        yield seen
    finally:
        follower.stop()
