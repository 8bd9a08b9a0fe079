"""Faults of programs, their machines and their connections, for `make chaos`.

A fault that lasts for seconds blocks its caller for that time; `restore` ends all faults that still last.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from chaos.jobs.controllers import LEASE_PATH, LEASE_SECONDS, Controller
from chaos.jobs.stage import JobStage
from chaos.outages import leader_name
from chaos.supervised import LEASE_PATH as GANG_LEASE_PATH
from chaos.supervised import SupervisedProgram
from localcluster import process
from localcluster.errors import LocalClusterError
from localcluster.faultproxy import FaultProxy
from localcluster.programs import APISERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER

_GRACE_SECONDS = 20.0
_LONGEST_AWAY_SECONDS = 3.0
# Both shorter and longer than a Lease, so that sometimes another replica acquires it.
_FROZEN_SECONDS = (1.0, 1.5 * LEASE_SECONDS)
_JUMP_SECONDS = (15.0, 120.0)
_OFF_SECONDS = (2.0, 12.0)
_PLANE = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER)
_STARTS = 5
_FOREIGN_HOLDER = "foreign-client_1"


class SystemFaults:
    """Injects faults: `actions` maps each kind to a function of a random number in [0, 1).

    The functions raise RefusedError, LocalClusterError and HTTPError.
    """

    def __init__(self, stage: JobStage, stopping: threading.Event) -> None:
        self._all = stage
        self._stage = stage.stage
        self._stopping = stopping
        self.actions: Mapping[str, Callable[[float], None]] = {
            "controller killed": lambda chance: self._kill(chance, self._random_controller(chance).supervised),
            "both controllers killed": lambda chance: self._kill(
                chance, *(each.supervised for each in stage.controllers)
            ),
            "controller stopped": lambda chance: self._end(chance, stage.leader.supervised),
            "controller frozen": lambda chance: self._freeze(chance, stage.leader.supervised),
            "lease stolen": lambda _: self._steal(LEASE_PATH),
            "gang scheduler frozen": self._freeze_gang_scheduler,
            "gang lease stolen": lambda _: self._steal(GANG_LEASE_PATH),
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
        self.revive()
        self._all.disk.free()
        for proxy in self._all.proxies:
            proxy.is_swallowing, proxy.is_refusing, proxy.delay_seconds = False, False, 0.0
        for each in self._all.controllers:
            if self._all.clocks.can_jump:
                self._all.clocks.set(each.name, 0.0)

    def _random_controller(self, chance: float) -> Controller:
        """Returns the leader in three of four cases."""
        leader = self._all.leader
        others = [each for each in self._all.controllers if each is not leader]
        return others[0] if others and chance * 100 % 1 > 0.75 else leader

    def _kill(self, chance: float, *programs: SupervisedProgram) -> None:
        for program in programs:
            program.kill(_LONGEST_AWAY_SECONDS * chance)

    def _end(self, chance: float, program: SupervisedProgram) -> None:
        program.kill(_LONGEST_AWAY_SECONDS * chance, grace_seconds=_GRACE_SECONDS)

    def _freeze(self, chance: float, *programs: SupervisedProgram) -> None:
        """Stops programs with SIGSTOP and continues them with SIGCONT, possibly after the leader has changed."""
        with contextlib.ExitStack() as frozen:
            for program in programs:
                frozen.enter_context(_frozen(program))
            self._rest(_FROZEN_SECONDS, chance)

    def _freeze_gang_scheduler(self, chance: float) -> None:
        name = leader_name(self._stage.api)
        replica = next((each for each in self._stage.replicas if each.name == name), self._stage.replicas[0])
        self._freeze(chance, *replica.programs)

    def _steal(self, path: str) -> None:
        """Writes another holder into the Lease, which is never renewed."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._stage.api.patch(path, {"spec": {"holderIdentity": _FOREIGN_HOLDER, "renewTime": now, "acquireTime": now}})

    def _restart(self, name: str, chance: float) -> None:
        self._stage.plane.kill(name)
        self._stage.report_outage()
        self._stopping.wait(_LONGEST_AWAY_SECONDS * chance)
        self._stage.plane.start_program(name)

    def _jump(self, chance: float) -> None:
        """Sets the clock of one machine ahead or back, and corrects it after some seconds."""
        clocks, machine = self._all.clocks, self._random_controller(chance).name
        if not clocks.can_jump:
            raise LocalClusterError("clocks cannot jump on this machine")
        low, high = _JUMP_SECONDS
        seconds = low + (high - low) * (chance * 10 % 1)
        clocks.set(machine, seconds if chance * 1000 % 1 < 0.5 else -seconds)
        self._rest(_OFF_SECONDS, chance)
        clocks.set(machine, 0.0)

    def _fill_disk(self, chance: float) -> None:
        if not self._all.disk.can_be_full:
            raise LocalClusterError("disks cannot be full on this machine")
        self._all.disk.fill()
        self._rest(_OFF_SECONDS, chance)
        self._all.disk.free()

    def _cut(self, _: float) -> None:
        for proxy in self._all.proxies:
            proxy.cut_all()
        self._stage.report_outage()

    def _disturb(self, chance: float, attribute: str, *, value: float) -> None:
        """Affects all connections of one controller or of the gang schedulers for some seconds."""
        proxies = self._all.proxies
        proxy: FaultProxy = proxies[int(chance * 10 % 1 * len(proxies))]
        self._stage.report_outage()
        setattr(proxy, attribute, value)
        self._rest(_OFF_SECONDS, chance)
        setattr(proxy, attribute, type(value)(0))
        if attribute == "is_swallowing":
            # Data was dropped, so the connections cannot be used any more.
            proxy.cut_all()

    def _rest(self, bounds: tuple[float, float], chance: float) -> None:
        low, high = bounds
        self._stopping.wait(low + (high - low) * chance)


@contextlib.contextmanager
def _frozen(program: SupervisedProgram) -> Iterator[None]:
    identity = program.identity
    if identity is None or not process.send(identity, signal.SIGSTOP):
        raise LocalClusterError("no program to stop")
    try:
        yield
    finally:
        process.send(identity, signal.SIGCONT)
