"""Faults of the cluster: other pods take the room, and nodes go and come back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Protocol

import urllib3

from chaos.owner import pod
from chaos.picture import PODS, Object
from chaos.stage import NODE, NODES, OTHERS, Stage
from localcluster.api import RefusedError
from localcluster.errors import LocalClusterError
from localcluster.fakekubelet import make_node

_FINISHED = ("Succeeded", "Failed")
_RETRY_SECONDS = 0.5


class Keeper(Protocol):
    """`chaos.owner.Owners`, or whoever else has jobs there."""

    @property
    def scheduler(self) -> str: ...
    def later(self, seconds: float, action: Callable[[], None]) -> None: ...


class Room:
    """`actions` by kind, each to be called with a chance. They raise RefusedError, LocalClusterError and HTTPError."""

    def __init__(self, stage: Stage, owners: Keeper) -> None:
        self._api = stage.api
        self._owners = owners
        self._numbers = itertools.count()
        self._away: set[str] = set()
        self.actions: Mapping[str, Callable[[float], None]] = {
            "foreign pods": lambda chance: self._make_foreign("default-scheduler", chance),
            "foreign pods on our scheduler": lambda chance: self._make_foreign(owners.scheduler, chance),
            "node cordoned": self._cordon,
            "node deleted": self._delete_node,
        }

    def restore(self) -> None:
        for node in sorted(self._away):
            self._come_back(node)

    def _make_foreign(self, scheduler: str, chance: float) -> None:
        """A few that run for some seconds; those that have ended are taken away."""
        path = PODS.format(OTHERS)
        for each in self._api.list(path):
            if each.get("status", {}).get("phase") in _FINISHED:
                self._delete_pod(each)
        for _ in range(1 + int(chance * 8)):
            body = pod(f"other-{next(self._numbers)}", "2", scheduler, 1.0 + 4.0 * chance)
            self._api.create(path, body)

    def _cordon(self, chance: float) -> None:
        node = self._present(chance)
        self._away.add(node)
        self._owners.later(1.0 + 5.0 * chance, lambda: self._come_back(node))
        self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    def _delete_node(self, chance: float) -> None:
        """As a machine that dies: the node's object goes, and somebody cleans up its pods."""
        node = self._present(chance)
        self._away.add(node)
        self._owners.later(1.0 + 5.0 * chance, lambda: self._come_back(node))
        self._api.delete(f"/api/v1/nodes/{node}")
        query = {"fieldSelector": f"spec.nodeName={node}"}
        for each in self._api.request("GET", "/api/v1/pods", query=query)["items"]:
            self._delete_pod(each)

    def _come_back(self, node: str) -> None:
        """Now, or as soon as the server lets it."""
        try:
            make_node(self._api, node, NODE)
            self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
            self._away.discard(node)
        except (RefusedError, urllib3.exceptions.HTTPError):
            self._owners.later(_RETRY_SECONDS, lambda: self._come_back(node))

    def _present(self, chance: float) -> str:
        """One of the nodes that are there; half of them always are."""
        there = [node for node in NODES if node not in self._away]
        if len(there) <= len(NODES) // 2:
            raise LocalClusterError("enough nodes are unavailable")
        return there[int(chance * len(there))]

    def _delete_pod(self, each: Object) -> None:
        meta = each["metadata"]
        self._api.delete(f"{PODS.format(meta['namespace'])}/{meta['name']}", gracePeriodSeconds=0)
