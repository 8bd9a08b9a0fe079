"""What breaks: programs are killed, nodes go and come, other pods take the room. One thread, one after the other."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping

import urllib3

from chaos.owner import PODS, Object, Owners, pod
from chaos.plan import Fault, fault
from chaos.stage import NODE, NODES, OTHERS, Stage
from localcluster.api import Api, RefusedError
from localcluster.errors import LocalClusterError
from localcluster.fakekubelet import make_node

_JOIN_SECONDS = 60.0
_FINISHED = ("Succeeded", "Failed")


class Faults:
    """`stop` ends it and makes everything whole again."""

    def __init__(self, stage: Stage, owners: Owners, rng: random.Random, mean_seconds: float) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._stage = stage
        self._api: Api = stage.api
        self._owners = owners
        self._rng = rng
        self._mean_seconds = mean_seconds
        self._numbers = itertools.count()
        self._away: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        self._actions: Mapping[str, Callable[[float], None]] = {
            "foreign pods": self._foreign_pods,
            "foreign pods on our scheduler": self._foreign_pods_of_ours,
            "node cordoned": self._cordon,
            "node deleted": self._delete_node,
            "gang scheduler killed": self._kill_extender,
            "kube-scheduler killed": self._kill_scheduler,
        }

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)
        for node in sorted(self._away):
            self._come_back(node)

    def _run(self) -> None:
        while True:
            coming = fault(self._rng, self._mean_seconds)
            if self._stopping.wait(coming.after_seconds):
                return
            self._do(coming)

    def _do(self, what: Fault) -> None:
        try:
            self._actions[what.kind](what.chance)
            self.counts[what.kind] += 1
        except (RefusedError, LocalClusterError, urllib3.exceptions.HTTPError) as error:
            self.problems.append(f"{what.kind}: {error}")

    def _foreign_pods(self, chance: float) -> None:
        self._make_foreign("default-scheduler", chance)

    def _foreign_pods_of_ours(self, chance: float) -> None:
        self._make_foreign(self._owners.scheduler, chance)

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
        self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        self._away.add(node)
        self._owners.later(1.0 + 5.0 * chance, lambda: self._come_back(node))

    def _delete_node(self, chance: float) -> None:
        """As a machine that dies: the node's object goes, and somebody cleans up its pods."""
        node = self._present(chance)
        self._away.add(node)
        self._api.delete(f"/api/v1/nodes/{node}")
        query = {"fieldSelector": f"spec.nodeName={node}"}
        for each in self._api.request("GET", "/api/v1/pods", query=query)["items"]:
            self._delete_pod(each)
        self._owners.later(1.0 + 5.0 * chance, lambda: self._come_back(node))

    def _come_back(self, node: str) -> None:
        try:
            make_node(self._api, node, NODE)
            self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
            self._away.discard(node)
        except (RefusedError, urllib3.exceptions.HTTPError) as error:
            self.problems.append(f"{node} did not come back: {error}")

    def _kill_extender(self, chance: float) -> None:
        self._stage.extender.kill()
        self._stopping.wait(chance)
        self._stage.extender.start()
        self._stage.extender.wait_ready()

    def _kill_scheduler(self, chance: float) -> None:
        self._stage.scheduler.kill()
        self._stopping.wait(chance)
        self._stage.scheduler.start()

    def _present(self, chance: float) -> str:
        """One of the nodes that are there; half of them always are."""
        there = [node for node in NODES if node not in self._away]
        if len(there) <= len(NODES) // 2:
            raise LocalClusterError("enough nodes are away")
        return there[int(chance * len(there))]

    def _delete_pod(self, each: Object) -> None:
        meta = each["metadata"]
        self._api.delete(f"{PODS.format(meta['namespace'])}/{meta['name']}", gracePeriodSeconds=0)
