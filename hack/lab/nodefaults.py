"""The faults of a run on real nodes: those of users, of nodes and of the leading controller."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.clusters import NODES, restart_node
from lab.command import wait
from lab.faults import Users
from lab.injection import Action, between, one_of, second_chance
from lab.leases import leader_of
from lab.mirror import PODS, Object, name_of
from lab.programs import CONTROLLER_LEASE, Controller
from lab.submitted import SubmittedJobs
from localcluster import network, node, process
from localcluster.api import RefusedError

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
_CORDONED_SECONDS = (5.0, 15.0)
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """Injects faults, one after the other. `report_outage` tells the auditor that there is no leader for a while."""

    folder: Path
    jobs: SubmittedJobs
    controllers: Sequence[Controller]
    report_outage: Callable[[], None]

    @property
    def actions(self) -> Mapping[str, Action]:
        users = Users(self.jobs).actions
        return {
            **{kind: users[kind] for kind in ("job suspended", "child Job deleted")},
            "pod deleted": self._delete,
            "pod deleted with a long grace period": lambda chance: self._delete(chance, gracePeriodSeconds=20),
            "pod deleted with a short grace period": lambda chance: self._delete(chance, gracePeriodSeconds=1),
            "pod evicted": lambda chance: self._evict(one_of(self._pods(), chance)),
            "node drained": self._drain,
            "node rebooted": self._reboot,
            "kubelet killed": self._kill_kubelet,
            "leading controller killed": self._kill_leader,
        }

    def _pods(self, node_name: str = "") -> list[Object]:
        """Returns the pods that may run, those of jobs that have ended included."""
        return [
            pod
            for pod in self.jobs.api.list(PODS.format(self.jobs.namespace))
            if pod["status"].get("phase") not in _ENDED
            and "deletionTimestamp" not in pod["metadata"]
            and node_name in ("", pod["spec"].get("nodeName"))
        ]

    def _path(self, pod: Object) -> str:
        return f"{PODS.format(self.jobs.namespace)}/{name_of(pod)}"

    def _delete(self, chance: float, **options: int) -> None:
        self.jobs.api.delete(self._path(one_of(self._pods(), chance)), **options)

    def _evict(self, pod: Object) -> None:
        meta = {"name": name_of(pod), "namespace": self.jobs.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        self.jobs.api.create(f"{self._path(pod)}/eviction", body)

    def _drain(self, chance: float) -> None:
        """Cordons a node and evicts its pods; the node is uncordoned some seconds later."""
        name = f"node-{_number(chance)}"
        self._cordon(name, value=True)
        seconds = between(_CORDONED_SECONDS, second_chance(chance))
        self.jobs.later(seconds, lambda: self._cordon(name, value=None))
        for pod in self._pods(name):
            # The pod may have ended meanwhile.
            with contextlib.suppress(RefusedError):
                self._evict(pod)

    def _cordon(self, name: str, *, value: bool | None) -> None:
        self.jobs.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": value}})

    def _reboot(self, chance: float) -> None:
        """Ends a node like a power failure does, and starts it before anything has noticed."""
        self.report_outage()
        restart_node(self.folder, _number(chance), _REBOOT_SECONDS)
        self.report_outage()

    def _kill_kubelet(self, chance: float) -> None:
        """Kills a kubelet, which its node starts again; the containers run on.

        A container that it is just starting ends with 128, as a program does that cannot start. So none may be.
        """
        plan, number = network.claim_of(self.folder), _number(chance)
        wait(lambda: all(map(_has_started, self._pods(f"node-{number}"))), "containers are always being started")
        processes = node.processes(plan, number, self.folder) if plan else []
        kubelets = [
            identity for identity in processes if Path(f"/proc/{identity.pid}/comm").read_text().strip() == "kubelet"
        ]
        process.send(one_of(kubelets, 0.0), signal.SIGKILL)

    def _kill_leader(self, chance: float) -> None:
        self.report_outage()
        leader = leader_of(self.jobs.api, CONTROLLER_LEASE, self.controllers) or self.controllers[0]
        leader.supervised.kill(3.0 * second_chance(chance))


def _has_started(pod: Object) -> bool:
    status = pod["status"]
    states = [container["state"] for container in status.get("containerStatuses") or ()]
    waiting = [state["waiting"].get("reason") for state in states if "waiting" in state]
    return status.get("phase") == "Running" and all(reason == "CrashLoopBackOff" for reason in waiting)


def _number(chance: float) -> int:
    return 1 + int(chance * NODES)
