"""Faults of programs, of their machines and of their connections, for `make chaos`.

What lasts some seconds blocks its caller for so long; `restore` makes whole what may still be broken.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from chaos.jobs.controllers import LEASE_PATH, LEASE_SECONDS, Controller
from chaos.jobs.stage import JobStage
from chaos.kept import LEASE_PATH as GANG_LEASE_PATH
from chaos.kept import Kept
from chaos.watchman import leader_name
from localcluster import process
from localcluster.errors import LocalClusterError
from localcluster.faultproxy import FaultProxy
from localcluster.programs import APISERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER

_GRACE_SECONDS = 20.0
_LONGEST_AWAY_SECONDS = 3.0
# Long enough that another one leads meanwhile, and short enough that none does.
_FROZEN_SECONDS = (1.0, 1.5 * LEASE_SECONDS)
_JUMP_SECONDS = (15.0, 120.0)
_OFF_SECONDS = (2.0, 12.0)
_PLANE = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER)
_STARTS = 5
_THIEF = "nobody-you-know_1"


class Breaks:
    """`actions` by kind, each to be called with a chance. They raise RefusedError, LocalClusterError and HTTPError."""

    def __init__(self, stage: JobStage, stopping: threading.Event) -> None:
        self._all = stage
        self._stage = stage.stage
        self._stopping = stopping
        self.actions: Mapping[str, Callable[[float], None]] = {
            "controller killed": lambda chance: self._kill(chance, self._some(chance).kept),
            "both controllers killed": lambda chance: self._kill(chance, *(each.kept for each in stage.controllers)),
            "controller stopped": lambda chance: self._end(chance, stage.leader.kept),
            "controller frozen": lambda chance: self._freeze(chance, stage.leader.kept),
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
        """Start what has not come back of the control plane: on a busy machine a start may have failed."""
        for name in _PLANE:
            for _ in range(_STARTS):
                try:
                    self._stage.plane.start_program(name)
                    break
                except LocalClusterError:
                    self._stage.tell_outage()

    def restore(self) -> None:
        self.revive()
        self._all.disk.free()
        for proxy in self._all.proxies:
            proxy.is_swallowing, proxy.is_refusing, proxy.delay_seconds = False, False, 0.0
        for each in self._all.controllers:
            if self._all.clocks.can_jump:
                self._all.clocks.set(each.name, 0.0)

    def _some(self, chance: float) -> Controller:
        """The leader, three times out of four."""
        leader = self._all.leader
        others = [each for each in self._all.controllers if each is not leader]
        return others[0] if others and chance * 100 % 1 > 0.75 else leader

    def _kill(self, chance: float, *programs: Kept) -> None:
        for program in programs:
            program.kill(_LONGEST_AWAY_SECONDS * chance)

    def _end(self, chance: float, program: Kept) -> None:
        program.kill(_LONGEST_AWAY_SECONDS * chance, grace_seconds=_GRACE_SECONDS)

    def _freeze(self, chance: float, *programs: Kept) -> None:
        """SIGSTOP, and SIGCONT: whoever leads goes on with what it was about to do, whoever leads by then."""
        with contextlib.ExitStack() as frozen:
            for program in programs:
                frozen.enter_context(_frozen(program))
            self._rest(_FROZEN_SECONDS, chance)

    def _freeze_gang_scheduler(self, chance: float) -> None:
        name = leader_name(self._stage.api)
        replica = next((each for each in self._stage.replicas if each.name == name), self._stage.replicas[0])
        self._freeze(chance, *replica.programs)

    def _steal(self, path: str) -> None:
        """Somebody else writes the Lease, and is never heard of again."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._stage.api.patch(path, {"spec": {"holderIdentity": _THIEF, "renewTime": now, "acquireTime": now}})

    def _restart(self, name: str, chance: float) -> None:
        self._stage.plane.kill(name)
        self._stage.tell_outage()
        self._stopping.wait(_LONGEST_AWAY_SECONDS * chance)
        self._stage.plane.start_program(name)

    def _jump(self, chance: float) -> None:
        """One machine's clock, ahead or back, and right again after some seconds."""
        clocks, machine = self._all.clocks, self._some(chance).name
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
        self._stage.tell_outage()

    def _disturb(self, chance: float, attribute: str, *, value: float) -> None:
        """All connections of one controller or of the gang schedulers, for some seconds; then they are reset."""
        proxies = self._all.proxies
        proxy: FaultProxy = proxies[int(chance * 10 % 1 * len(proxies))]
        self._stage.tell_outage()
        setattr(proxy, attribute, value)
        self._rest(_OFF_SECONDS, chance)
        setattr(proxy, attribute, type(value)(0))
        if attribute == "is_swallowing":
            # What was swallowed is gone: nothing sensible can follow on the same connection.
            proxy.cut_all()

    def _rest(self, bounds: tuple[float, float], chance: float) -> None:
        low, high = bounds
        self._stopping.wait(low + (high - low) * chance)


@contextlib.contextmanager
def _frozen(program: Kept) -> Iterator[None]:
    identity = program.identity
    if identity is None or not process.send(identity, signal.SIGSTOP):
        raise LocalClusterError("there is no program to stop")
    try:
        yield
    finally:
        process.send(identity, signal.SIGCONT)
