"""Mirrors the objects of a kind from a watch, grouped by gang or job.

Threads: one for each kind. `changed` is called in them, with the name of a group, without a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from localcluster.api import Api
from localcluster.follower import Follower

Object = dict[str, Any]

PREFIX = "scheduling.kubeflow.org"
GANGS = f"/apis/{PREFIX}/v1alpha1/namespaces/{{}}/gangs"
PODS = "/api/v1/namespaces/{}/pods"


def name_of(obj: Object) -> str:
    return str(obj["metadata"]["name"])


class Mirror:
    """Mirrors one kind. `group_of` returns the group of an object; None for an object that is ignored."""

    def __init__(
        self,
        api: Api,
        path: str,
        group_of: Callable[[Object], str | None],
        changed: Callable[[str], None] = lambda group: None,
    ) -> None:
        self._group_of = group_of
        self._changed = changed
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, Object]] = {}
        # During a list: the objects that it has contained so far.
        self._listed: set[tuple[str, str]] | None = None
        self._follower = Follower(api, path, self)

    def start(self) -> None:
        self._follower.start()

    def stop(self) -> None:
        self._follower.stop()

    def of(self, group: str) -> Mapping[str, Object]:
        """Returns the objects of a group, by name."""
        with self._lock:
            return dict(self._groups.get(group, {}))

    # The methods of `localcluster.follower.Reader`.

    def list_begins(self) -> None:
        self._listed = set()

    def take(self, kind: str, obj: Object) -> None:
        group, name = self._group_of(obj), name_of(obj)
        if group is None:
            return
        with self._lock:
            members = self._groups.setdefault(group, {})
            if kind == "DELETED":
                members.pop(name, None)
            else:
                members[name] = obj
        if self._listed is not None:
            self._listed.add((group, name))
        self._changed(group)

    def list_ends(self, bookmark: Object) -> None:
        listed, self._listed = self._listed or set(), None
        with self._lock:
            known = {(group, name) for group, members in self._groups.items() for name in members}
            for group, name in known - listed:
                del self._groups[group][name]
        for group in {group for group, _ in known - listed}:
            self._changed(group)
