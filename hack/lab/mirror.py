"""Mirrors the objects of a kind from a watch.

Threads: one for each mirror. `changed` is called in it, with the name of an object that has changed or was deleted.
"""

from __future__ import annotations

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
    """Mirrors one kind in one namespace."""

    def __init__(self, api: Api, path: str, changed: Callable[[str], None]) -> None:
        self._changed = changed
        # Replaced as a whole with each change, and therefore read without a lock.
        self._objects: Mapping[str, Object] = {}
        # During a list: the names that it has contained so far.
        self._listed: set[str] | None = None
        self._follower = Follower(api, path, self)

    def start(self) -> None:
        self._follower.start()

    def stop(self) -> None:
        self._follower.stop()

    def get(self, name: str) -> Object | None:
        return self._objects.get(name)

    # The methods of `localcluster.follower.Reader`.

    def list_begins(self) -> None:
        self._listed = set()

    def take(self, kind: str, obj: Object) -> None:
        name = name_of(obj)
        others = {other: known for other, known in self._objects.items() if other != name}
        self._objects = others if kind == "DELETED" else {**others, name: obj}
        if self._listed is not None:
            self._listed.add(name)
        self._changed(name)

    def list_ends(self, bookmark: Object) -> None:
        listed, self._listed = self._listed or set(), None
        gone = self._objects.keys() - listed
        self._objects = {name: obj for name, obj in self._objects.items() if name in listed}
        for name in gone:
            self._changed(name)
