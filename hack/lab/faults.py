"""Faults of the cluster, its users, the programs, and their machines and connections.

`actions` maps each kind to a function of a random number in [0, 1), which raises RefusedError, LocalClusterError and
HTTPError. A fault that lasts for seconds blocks its caller for that time; `restore` ends all that still lasts.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import urllib3

from lab.injection import Action, between, one_of, second_chance
from lab.leases import lease_path
from lab.mirror import PODS, Object, name_of
from lab.programs import CONTROLLER_LEASE, CONTROLLER_LEASE_SECONDS, GANG_LEASE, Controller, SupervisedProgram
from lab.stage import NODE, NODES, OTHERS, Stage
from lab.submitted import CHILDREN, SubmittedJobs
from localcluster import process
from localcluster.api import Api, RefusedError
from localcluster.errors import LocalClusterError
from localcluster.fakekubelet import RUN_SECONDS, make_node
from localcluster.faultproxy import FaultProxy
from localcluster.gangscheduler import NAME
from localcluster.programs import APISERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER

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
            self._api.create(path, _foreign_pod(f"other-{next(self._numbers)}", scheduler, 1.0 + 4.0 * chance))

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


def _foreign_pod(name: str, scheduler: str, run_seconds: float) -> Object:
    container = {"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": "2"}}}
    return {
        "metadata": {"name": name, "annotations": {RUN_SECONDS: str(run_seconds)}},
        "spec": {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [container]},
    }


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
        self._jobs.api.delete(f"{path.format(self._jobs.namespace_of(plan))}/{name_of(child)}", **options)


# The grace period of a deleted pod.
_GRACE_SECONDS = 20.0
_LONGEST_AWAY_SECONDS = 3.0
# Both shorter and longer than a Lease, so that sometimes another replica acquires it.
_FROZEN_SECONDS = (1.0, 1.5 * CONTROLLER_LEASE_SECONDS)
_JUMP_SECONDS = (15.0, 120.0)
_OFF_SECONDS = (2.0, 12.0)
_PLANE = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER)
_STARTS = 5
_FOREIGN_HOLDER = "foreign-client_1"


class SystemFaults:
    """Faults of the programs under test and of the control plane, which start again, of machines and connections."""

    def __init__(self, stage: Stage, stopping: threading.Event) -> None:
        self._stage = stage
        self._stopping = stopping
        self._clocks, self._disk = stage.clocks, stage.disk
        self._controllers = stage.controllers
        self.actions: Mapping[str, Action] = {
            **{kind: functools.partial(stage.requests.turn_on, kind) for kind in stage.requests.kinds},
            "controller killed": lambda chance: self._kill(chance, self._random_controller(chance).supervised),
            "both controllers killed": lambda chance: self._kill(
                chance, *(controller.supervised for controller in self._controllers)
            ),
            "controller stopped": lambda chance: self._end(chance, stage.leader.supervised),
            "controller frozen": lambda chance: self._freeze(chance, stage.leader.supervised),
            "lease stolen": lambda _: self._steal(CONTROLLER_LEASE),
            "gang scheduler killed": lambda chance: self._kill(chance, stage.gang_leader.extender),
            "gang kube-scheduler killed": lambda chance: self._kill(chance, stage.gang_leader.scheduler),
            "gang kube-scheduler stopped": lambda chance: self._end(chance, stage.gang_leader.scheduler),
            "gang leader killed": lambda chance: self._kill(chance, *stage.gang_leader.programs),
            "gang leader stopped": lambda chance: self._end(chance, *stage.gang_leader.programs),
            "gang scheduler frozen": lambda chance: self._freeze(chance, *stage.gang_leader.programs),
            "gang lease stolen": lambda _: self._steal(GANG_LEASE),
            "kube-apiserver killed": lambda chance: self._restart(APISERVER, chance),
            "etcd killed": lambda chance: self._restart(ETCD, chance),
            "kube-scheduler killed": lambda chance: self._restart(SCHEDULER, chance),
            "kube-controller-manager killed": lambda chance: self._restart(CONTROLLER_MANAGER, chance),
            "clock jump": self._jump,
            "disk full": self._fill_disk,
            "connections cut": self._cut,
            "connections half-open": lambda chance: self._disturb(chance, "is_swallowing", value=True),
            "connections refused": lambda chance: self._disturb(chance, "is_refusing", value=True),
            "answers slow": lambda chance: self._disturb(chance, "delay_seconds", value=0.1 + 1.4 * chance),
        }

    def revive(self) -> None:
        """Starts the programs of the control plane that have not started again, as may happen on a busy machine."""
        for name in _PLANE:
            for _ in range(_STARTS):
                try:
                    self._stage.plane.start_program(name)
                    break
                except LocalClusterError:
                    self._stage.report_outage()

    def restore(self) -> None:
        """Ends all faults that still last."""
        self._stage.requests.turn_off()
        self.revive()
        self._disk.free()
        for proxy in self._stage.proxies:
            proxy.is_swallowing, proxy.is_refusing, proxy.delay_seconds = False, False, 0.0
        for controller in self._controllers:
            if self._clocks.can_jump:
                self._clocks.set(controller.name, 0.0)

    def _kill(self, chance: float, *programs: SupervisedProgram) -> None:
        for program in programs:
            program.kill(_LONGEST_AWAY_SECONDS * chance)

    def _end(self, chance: float, *programs: SupervisedProgram) -> None:
        """Stops programs at the same time, as when their pod is deleted: kube-scheduler releases its Lease."""
        end = functools.partial(
            SupervisedProgram.kill, away_seconds=_LONGEST_AWAY_SECONDS * chance, grace_seconds=_GRACE_SECONDS
        )
        with ThreadPoolExecutor(len(programs)) as pool:
            list(pool.map(end, programs))

    def _restart(self, name: str, chance: float) -> None:
        self._stage.plane.kill(name)
        self._stage.report_outage()
        self._stopping.wait(_LONGEST_AWAY_SECONDS * chance)
        self._stage.plane.start_program(name)

    def _cut(self, _: float) -> None:
        for proxy in self._stage.proxies:
            proxy.cut_all()
        self._stage.report_outage()

    def _random_controller(self, chance: float) -> Controller:
        """Returns the leader in three of four cases."""
        leader = self._stage.leader
        others = [controller for controller in self._controllers if controller is not leader]
        return others[0] if others and chance * 100 % 1 > 0.75 else leader

    def _freeze(self, chance: float, *programs: SupervisedProgram) -> None:
        """Stops programs with SIGSTOP and continues them with SIGCONT, possibly after the leader has changed."""
        with contextlib.ExitStack() as frozen:
            for program in programs:
                frozen.enter_context(_frozen(program))
            self._rest(_FROZEN_SECONDS, chance)

    def _steal(self, lease: str) -> None:
        """Writes another holder into the Lease, which is never renewed."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": _FOREIGN_HOLDER, "renewTime": now, "acquireTime": now}
        self._stage.api.patch(lease_path(lease), {"spec": spec})

    def _jump(self, chance: float) -> None:
        """Sets the clock of one machine ahead or back, and corrects it after some seconds."""
        machine = self._random_controller(chance).name
        if not self._clocks.can_jump:
            raise LocalClusterError("clocks cannot jump on this machine")
        seconds = between(_JUMP_SECONDS, chance * 10 % 1)
        self._clocks.set(machine, seconds if chance * 1000 % 1 < 0.5 else -seconds)
        self._rest(_OFF_SECONDS, chance)
        self._clocks.set(machine, 0.0)

    def _fill_disk(self, chance: float) -> None:
        if not self._disk.can_be_full:
            raise LocalClusterError("disks cannot be full on this machine")
        self._disk.fill()
        self._rest(_OFF_SECONDS, chance)
        self._disk.free()

    def _disturb(self, chance: float, attribute: str, *, value: float) -> None:
        """Affects all connections of one controller or of the gang schedulers for some seconds."""
        proxies = self._stage.proxies
        proxy: FaultProxy = proxies[int(chance * 10 % 1 * len(proxies))]
        self._stage.report_outage()
        setattr(proxy, attribute, value)
        self._rest(_OFF_SECONDS, chance)
        setattr(proxy, attribute, type(value)(0))
        if attribute == "is_swallowing":
            # Data was dropped, so the connections cannot be used any more.
            proxy.cut_all()

    def _rest(self, bounds: tuple[float, float], chance: float) -> None:
        self._stopping.wait(between(bounds, chance))


@contextlib.contextmanager
def _frozen(program: SupervisedProgram) -> Iterator[None]:
    identity = program.identity
    if identity is None or not process.send(identity, signal.SIGSTOP):
        raise LocalClusterError("no program to stop")
    try:
        yield
    finally:
        process.send(identity, signal.SIGCONT)
