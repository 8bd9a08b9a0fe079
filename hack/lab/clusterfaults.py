"""Faults of the cluster: pods of others use capacity, nodes go, and users act on jobs and on what belongs to them.

`actions` maps each kind to a function of a random number in [0, 1), which raises RefusedError, LocalClusterError and
HTTPError.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import urllib3

from lab.injection import Action, one_of, second_chance
from lab.mirror import PODS, Object, name_of
from lab.owners import pod
from lab.stage import NODE, NODES, OTHERS
from lab.submitted import CHILDREN, SubmittedJobs
from localcluster.api import Api, RefusedError
from localcluster.errors import LocalClusterError
from localcluster.fakekubelet import make_node
from localcluster.gangscheduler import NAME

_FINISHED = ("Succeeded", "Failed")
_RETRY_SECONDS = 0.5
_JOBS, _SERVICES, _, _, _GANGS = CHILDREN


class CapacityFaults:
    """Pods of other owners, and nodes that are cordoned or deleted and come back; `later` delays an action."""

    def __init__(self, api: Api, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._api = api
        self._later = later
        self._numbers = itertools.count()
        self._unavailable: set[str] = set()
        self.actions: Mapping[str, Action] = {
            "foreign pods": lambda chance: self._create_foreign_pods("default-scheduler", chance),
            "foreign pods on our scheduler": lambda chance: self._create_foreign_pods(NAME, chance),
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
        for existing in self._api.list(path):
            if existing.get("status", {}).get("phase") in _FINISHED:
                self._delete_pod(existing)
        for _ in range(1 + int(chance * 8)):
            self._api.create(path, pod(f"other-{next(self._numbers)}", "2", scheduler, 1.0 + 4.0 * chance))

    def _cordon(self, chance: float) -> None:
        node = self._take_away(chance)
        self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    def _delete_node(self, chance: float) -> None:
        """Deletes a node and its pods, as when a machine fails."""
        node = self._take_away(chance)
        self._api.delete(f"/api/v1/nodes/{node}")
        query = {"fieldSelector": f"spec.nodeName={node}"}
        for lost in self._api.request("GET", "/api/v1/pods", query=query)["items"]:
            self._delete_pod(lost)

    def _take_away(self, chance: float) -> str:
        """Returns an available node, which comes back some seconds later.

        Raises LocalClusterError if half of the nodes are unavailable.
        """
        available = [node for node in NODES if node not in self._unavailable]
        if len(available) <= len(NODES) // 2:
            raise LocalClusterError("enough nodes are unavailable")
        node = one_of(available, chance)
        self._unavailable.add(node)
        self._later(1.0 + 5.0 * chance, lambda: self._bring_back(node))
        return node

    def _bring_back(self, node: str) -> None:
        """Brings a node back, with retries until the server accepts it."""
        try:
            make_node(self._api, node, NODE)
            self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
            self._unavailable.discard(node)
        except (RefusedError, urllib3.exceptions.HTTPError):
            self._later(_RETRY_SECONDS, lambda: self._bring_back(node))

    def _delete_pod(self, obj: Object) -> None:
        self._api.delete(f"{PODS.format(obj['metadata']['namespace'])}/{name_of(obj)}", gracePeriodSeconds=0)


class Users:
    """Actions of users on their jobs, and on children that belong to the controller."""

    def __init__(self, jobs: SubmittedJobs) -> None:
        self._jobs = jobs
        self.actions: Mapping[str, Action] = {
            "job suspended": self._suspend,
            "job scaled": self._scale,
            "job deleted in the background": lambda chance: self._delete(chance, "Background"),
            "job deleted in the foreground": lambda chance: self._delete(chance, "Foreground"),
            "job deleted, children orphaned": lambda chance: self._delete(chance, "Orphan"),
            "pod deleted": lambda chance: self._delete_child(chance, PODS),
            "pod deleted at once": lambda chance: self._delete_child(chance, PODS, gracePeriodSeconds=0),
            "child Job deleted": lambda chance: self._delete_child(chance, _JOBS, propagationPolicy="Background"),
            "Service deleted": lambda chance: self._delete_child(chance, _SERVICES),
            "Gang deleted": lambda chance: self._delete_child(chance, _GANGS),
        }

    def _suspend(self, chance: float) -> None:
        """Suspends a job and resumes it after some seconds."""
        name = one_of(self._jobs.active(), chance).name
        self._jobs.suspend(name, value=True)
        self._jobs.later(0.5 + 5.0 * second_chance(chance), lambda: self._jobs.suspend(name, value=False))

    def _scale(self, chance: float) -> None:
        plan = one_of([plan for plan in self._jobs.active() if plan.sizes[1]], chance)
        least, most = plan.sizes
        self._jobs.scale(plan.name, least + int(second_chance(chance) * (most + 1 - least)))

    def _delete(self, chance: float, propagation: str) -> None:
        """Deletes a job, possibly one that has ended."""
        self._jobs.delete(one_of(self._jobs.existing(), chance).name, propagation)

    def _delete_child(self, chance: float, path: str, **options: object) -> None:
        """Deletes a child of a job that has such children."""
        plan = one_of([plan for plan in self._jobs.active() if plan.is_gang or path != _GANGS], chance)
        child = one_of(self._jobs.children(plan, path), second_chance(chance))
        self._jobs.api.delete(f"{path.format(self._jobs.namespace)}/{name_of(child)}", **options)
