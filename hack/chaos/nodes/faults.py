"""The faults of a run on real nodes: those of users, of nodes and of the leading controller."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

from chaos.jobs.controllers import Controller, leader_of
from chaos.jobs.submitted import Object, SubmittedJobs
from chaos.jobs.users import PODS, Users, one_of, second_chance
from chaos.stage import wait
from localcluster import network, node, nodes, process, stack
from localcluster.api import RefusedError
from localcluster.errors import LocalClusterError
from localcluster.report import silent

NODES = 2
# Relative frequency of each kind.
FAULTS: Mapping[str, int] = {
    "pod deleted": 6,
    "pod deleted with a long grace period": 4,
    "pod deleted with a short grace period": 4,
    "pod evicted": 6,
    "node drained": 4,
    "node rebooted": 3,
    "kubelet killed": 3,
    "leading controller killed": 4,
    "job suspended": 5,
    "child Job deleted": 4,
}
_REBOOT_SECONDS = 3.0
_START_TRIES = 5
_CORDONED_SECONDS = (5.0, 15.0)
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """Injects faults, one after the other. `report_outage` tells the auditor that there is no leader for a while."""

    folder: Path
    jobs: SubmittedJobs
    controllers: Sequence[Controller]
    report_outage: Callable[[], None]
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def inject(self, kind: str, chance: float) -> None:
        """Injects a fault; one that finds no target is noted and does not count."""
        users = Users(self.jobs).actions
        actions: Mapping[str, Callable[[float], None]] = {
            "job suspended": users["job suspended"],
            "child Job deleted": users["child Job deleted"],
            "pod deleted": self._delete,
            "pod deleted with a long grace period": lambda chance: self._delete(chance, gracePeriodSeconds=20),
            "pod deleted with a short grace period": lambda chance: self._delete(chance, gracePeriodSeconds=1),
            "pod evicted": lambda chance: self._evict(one_of(self._pods(), chance)),
            "node drained": self._drain,
            "node rebooted": self._reboot,
            "kubelet killed": self._kill_kubelet,
            "leading controller killed": self._kill_leader,
        }
        try:
            actions[kind](chance)
            self.counts[kind] += 1
        except (LocalClusterError, urllib3.exceptions.HTTPError, OSError) as error:
            self.problems.append(f"{kind}: {error}")

    def _pods(self, node_name: str = "") -> list[Object]:
        """Returns the pods that may run, those of jobs that have ended included."""
        found = self.jobs.api.list(PODS.format(self.jobs.namespace))
        return [
            pod
            for pod in found
            if pod["status"].get("phase") not in _ENDED
            and "deletionTimestamp" not in pod["metadata"]
            and node_name in ("", pod["spec"].get("nodeName"))
        ]

    def _path(self, pod: Object) -> str:
        return f"{PODS.format(self.jobs.namespace)}/{pod['metadata']['name']}"

    def _delete(self, chance: float, **options: int) -> None:
        self.jobs.api.delete(self._path(one_of(self._pods(), chance)), **options)

    def _evict(self, pod: Object) -> None:
        meta = {"name": pod["metadata"]["name"], "namespace": self.jobs.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        self.jobs.api.create(f"{self._path(pod)}/eviction", body)

    def _drain(self, chance: float) -> None:
        """Cordons a node and evicts its pods; the node is uncordoned some seconds later."""
        name = f"node-{_number(chance)}"
        self._cordon(name, value=True)
        low, high = _CORDONED_SECONDS
        self.jobs.later(low + (high - low) * second_chance(chance), lambda: self._cordon(name, value=None))
        for pod in self._pods(name):
            # The pod may have ended meanwhile.
            with contextlib.suppress(RefusedError):
                self._evict(pod)

    def _cordon(self, name: str, *, value: bool | None) -> None:
        self.jobs.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": value}})

    def _reboot(self, chance: float) -> None:
        """Ends a node like a power failure does, and starts it before anything has noticed."""
        number = _number(chance)
        self.report_outage()
        stack.node_kill(self.folder, number, silent)
        time.sleep(_REBOOT_SECONDS)
        for attempt in range(_START_TRIES):
            try:
                stack.node_start(self.folder, number, silent)
                break
            except LocalClusterError:
                if attempt == _START_TRIES - 1:
                    raise
                nodes.kill(self.folder, number)
        self.report_outage()

    def _kill_kubelet(self, chance: float) -> None:
        """Kills a kubelet, which its node starts again; the containers run on.

        A container that it is just starting ends with 128, as a program does that cannot start. So none may be.
        """
        plan, number = network.claim_of(self.folder), _number(chance)
        wait(lambda: all(map(_has_started, self._pods(f"node-{number}"))), "containers are always being started")
        found = node.processes(plan, number, self.folder) if plan else []
        kubelets = [each for each in found if Path(f"/proc/{each.pid}/comm").read_text().strip() == "kubelet"]
        process.send(one_of(kubelets, 0.0), signal.SIGKILL)

    def _kill_leader(self, chance: float) -> None:
        self.report_outage()
        leader = leader_of(self.jobs.api, self.controllers) or self.controllers[0]
        leader.supervised.kill(3.0 * second_chance(chance))


def _has_started(pod: Object) -> bool:
    status = pod["status"]
    states = [each["state"] for each in status.get("containerStatuses") or ()]
    waiting = [each["waiting"].get("reason") for each in states if "waiting" in each]
    return status.get("phase") == "Running" and all(reason == "CrashLoopBackOff" for reason in waiting)


def _number(chance: float) -> int:
    return 1 + int(chance * NODES)
