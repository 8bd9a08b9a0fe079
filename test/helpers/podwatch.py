"""Records the last state of each pod of a namespace, including deleted pods."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from helpers.poll import eventually
from localcluster.api import Api
from localcluster.follower import Follower

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodWatch:
    """A `localcluster.follower.Reader`. The follower's thread writes; any thread may read."""

    pods: dict[str, Object] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)

    def list_begins(self) -> None:
        """See Reader."""

    def take(self, change: str, obj: Object) -> None:
        name = obj["metadata"]["name"]
        self.pods[name] = obj
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
