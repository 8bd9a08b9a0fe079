"""Faults of capacity: pods of other owners use it, and nodes are cordoned or deleted and come back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Protocol

import urllib3

from chaos.mirror import PODS, Object
from chaos.owner import pod
from chaos.stage import NODE, NODES, OTHERS, Stage
from localcluster.api import RefusedError
from localcluster.errors import LocalClusterError
from localcluster.fakekubelet import make_node

_FINISHED = ("Succeeded", "Failed")
_RETRY_SECONDS = 0.5


class Owner(Protocol):
    """Implemented by `chaos.owner.Owners` and `chaos.jobs.submitted.SubmittedJobs`."""

    @property
    def scheduler(self) -> str: ...
    def later(self, seconds: float, action: Callable[[], None]) -> None: ...


class CapacityFaults:
    """Injects faults: `actions` maps each kind to a function of a random number in [0, 1).

    The functions raise RefusedError, LocalClusterError and HTTPError.
    """

    def __init__(self, stage: Stage, owners: Owner) -> None:
        self._api = stage.api
        self._owners = owners
        self._numbers = itertools.count()
        self._unavailable: set[str] = set()
        self.actions: Mapping[str, Callable[[float], None]] = {
            "foreign pods": lambda chance: self._create_foreign_pods("default-scheduler", chance),
            "foreign pods on our scheduler": lambda chance: self._create_foreign_pods(owners.scheduler, chance),
            "node cordoned": self._cordon,
            "node deleted": self._delete_node,
        }

    def restore(self) -> None:
        """Brings back all nodes."""
        for node in sorted(self._unavailable):
            self._bring_back(node)

    def _create_foreign_pods(self, scheduler: str, chance: float) -> None:
        """Creates a few pods that run for some seconds, and deletes those that have finished."""
        path = PODS.format(OTHERS)
        for each in self._api.list(path):
            if each.get("status", {}).get("phase") in _FINISHED:
                self._delete_pod(each)
        for _ in range(1 + int(chance * 8)):
            body = pod(f"other-{next(self._numbers)}", "2", scheduler, 1.0 + 4.0 * chance)
            self._api.create(path, body)

    def _cordon(self, chance: float) -> None:
        node = self._available_node(chance)
        self._unavailable.add(node)
        self._owners.later(1.0 + 5.0 * chance, lambda: self._bring_back(node))
        self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    def _delete_node(self, chance: float) -> None:
        """Deletes a node and its pods, as when a machine fails."""
        node = self._available_node(chance)
        self._unavailable.add(node)
        self._owners.later(1.0 + 5.0 * chance, lambda: self._bring_back(node))
        self._api.delete(f"/api/v1/nodes/{node}")
        query = {"fieldSelector": f"spec.nodeName={node}"}
        for each in self._api.request("GET", "/api/v1/pods", query=query)["items"]:
            self._delete_pod(each)

    def _bring_back(self, node: str) -> None:
        """Brings a node back, with retries until the server accepts it."""
        try:
            make_node(self._api, node, NODE)
            self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
            self._unavailable.discard(node)
        except (RefusedError, urllib3.exceptions.HTTPError):
            self._owners.later(_RETRY_SECONDS, lambda: self._bring_back(node))

    def _available_node(self, chance: float) -> str:
        """Returns an available node. Raises LocalClusterError if half of the nodes are unavailable."""
        available = [node for node in NODES if node not in self._unavailable]
        if len(available) <= len(NODES) // 2:
            raise LocalClusterError("enough nodes are unavailable")
        return available[int(chance * len(available))]

    def _delete_pod(self, each: Object) -> None:
        meta = each["metadata"]
        self._api.delete(f"{PODS.format(meta['namespace'])}/{meta['name']}", gracePeriodSeconds=0)
