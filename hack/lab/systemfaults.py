"""Faults of programs, their machines and their connections.

A fault that lasts for seconds blocks its caller for that time. `actions` maps each kind to a function of a random
number in [0, 1), which raises RefusedError, LocalClusterError and HTTPError; `restore` ends all that still lasts.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from lab.injection import Action, between
from lab.leases import lease_path
from lab.programs import CONTROLLER_LEASE, CONTROLLER_LEASE_SECONDS, GANG_LEASE, Controller, SupervisedProgram
from lab.stage import JobStage, Stage
from localcluster import process
from localcluster.errors import LocalClusterError
from localcluster.faultproxy import FaultProxy
from localcluster.programs import APISERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER

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


class GangFaults:
    """Ends programs of the leading gang scheduler and of the control plane, which start again, and cuts connections."""

    def __init__(self, stage: Stage, stopping: threading.Event) -> None:
        self._stage = stage
        self._stopping = stopping
        self.actions: Mapping[str, Action] = {
            **{kind: functools.partial(stage.requests.turn_on, kind) for kind in stage.requests.kinds},
            "gang scheduler killed": lambda chance: self._kill(chance, stage.gang_leader.extender),
            "gang kube-scheduler killed": lambda chance: self._kill(chance, stage.gang_leader.scheduler),
            "leader killed": lambda chance: self._kill(chance, *stage.gang_leader.programs),
            "gang kube-scheduler stopped": lambda chance: self._end(chance, stage.gang_leader.scheduler),
            "leader stopped": lambda chance: self._end(chance, *stage.gang_leader.programs),
            "kube-apiserver killed": lambda chance: self._restart(APISERVER, chance),
            "etcd killed": lambda chance: self._restart(ETCD, chance),
            "connections cut": self._cut,
        }

    def restore(self) -> None:
        """Ends all faults that still last."""
        self._stage.requests.turn_off()

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


class SystemFaults(GangFaults):
    """Faults of controllers too, with their machines and connections."""

    def __init__(self, stage: JobStage, stopping: threading.Event) -> None:
        super().__init__(stage.stage, stopping)
        self._clocks, self._disk = stage.clocks, stage.disk
        self._controllers = stage.stage.controllers
        self.actions = {
            **self.actions,
            "controller killed": lambda chance: self._kill(chance, self._random_controller(chance).supervised),
            "both controllers killed": lambda chance: self._kill(
                chance, *(controller.supervised for controller in self._controllers)
            ),
            "controller stopped": lambda chance: self._end(chance, stage.stage.leader.supervised),
            "controller frozen": lambda chance: self._freeze(chance, stage.stage.leader.supervised),
            "lease stolen": lambda _: self._steal(CONTROLLER_LEASE),
            "gang scheduler frozen": lambda chance: self._freeze(chance, *self._stage.gang_leader.programs),
            "gang lease stolen": lambda _: self._steal(GANG_LEASE),
            "kube-scheduler killed": lambda chance: self._restart(SCHEDULER, chance),
            "kube-controller-manager killed": lambda chance: self._restart(CONTROLLER_MANAGER, chance),
            "clock jump": self._jump,
            "disk full": self._fill_disk,
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
        super().restore()
        self.revive()
        self._disk.free()
        for proxy in self._stage.proxies:
            proxy.is_swallowing, proxy.is_refusing, proxy.delay_seconds = False, False, 0.0
        for controller in self._controllers:
            if self._clocks.can_jump:
                self._clocks.set(controller.name, 0.0)

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
