"""The faults of `make chaos`: how each is injected, and which of them never overlap."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Mapping, Sequence

from chaos.capacity import CapacityFaults
from chaos.faults import Action, Faults, Injections
from chaos.jobs.faultplan import ELECTED, FAULTS, REQUEST_FAULTS
from chaos.jobs.settings import Settings
from chaos.jobs.stage import JobStage
from chaos.jobs.systemfaults import SystemFaults
from chaos.jobs.users import Users
from chaos.kills import Kills
from chaos.plan import Fault, fault

_PLANE = ("kube-apiserver killed", "etcd killed", "kube-scheduler killed", "kube-controller-manager killed")
_GANGS = ("gang scheduler killed", "gang kube-scheduler killed", "gang scheduler frozen", "gang lease stolen")
_NETWORK = ("connections half-open", "connections refused", "answers slow")
# Faults of one lane never overlap.
LANES: Mapping[str, Sequence[str]] = {
    "plane": _PLANE,
    "gangs": _GANGS,
    "controllers": ("controller killed", "both controllers killed", "controller stopped", "controller frozen"),
    "network": _NETWORK,
    "clock": ("clock jump",),
    "disk": ("disk full",),
}
# The last part of the faults spares the controllers, so that their leaks add up.
_SPARED_PART = 0.2


def job_faults(stage: JobStage, rng: random.Random, settings: Settings) -> Faults:
    """Returns the faults of a run."""
    stopping = threading.Event()
    capacity, system = CapacityFaults(stage.stage, stage.jobs), SystemFaults(stage, stopping)
    gangs = Kills(stage.stage, stopping).actions
    actions: Mapping[str, Action] = {
        **capacity.actions,
        **system.actions,
        **Users(stage.jobs).actions,
        **{kind: functools.partial(stage.stage.requests.turn_on, kind) for kind in REQUEST_FAULTS},
        **{kind: gangs[kind] for kind in ("gang scheduler killed", "kube-apiserver killed", "etcd killed")},
        "gang kube-scheduler killed": gangs["kube-scheduler killed"],
    }

    def next_fault(done: int) -> Fault | None:
        if done >= settings.faults:
            return None
        is_spared = done > (1 - _SPARED_PART) * settings.faults and not settings.kinds
        while (chosen := fault(rng, settings.mean_seconds, settings.kinds, FAULTS)).kind in ELECTED and is_spared:
            pass
        return chosen

    def failed(kind: str) -> None:
        if kind in _PLANE:
            system.revive()

    ends = (stage.stage.requests.turn_off, system.restore, capacity.restore)
    return Faults(Injections(next_fault, {kind: actions[kind] for kind in FAULTS}, ends, LANES, failed), stopping)
