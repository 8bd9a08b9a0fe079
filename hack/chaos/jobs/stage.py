"""Where `make chaos` plays: the stage of `make chaos-gang` (chaos.stage), with two controllers and an auditor of jobs.

Each controller speaks to the API server through a proxy of its own, so that one alone can be cut off; a controller and
a gang scheduler that have one name share a machine, and so its clock.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.jobs.actor import Actor
from chaos.jobs.controllers import Controller, Pulse, controller_program, leader_of
from chaos.jobs.crowd import Crowd
from chaos.jobs.faultplan import TARGETS, TROUBLES
from chaos.jobs.machines import Clocks, Disk
from chaos.kept import Kept
from chaos.requests import RequestFaults
from chaos.stage import NAMESPACE, REPLICAS, Props, Stage, open_stage, start_auditor, wait
from localcluster import ports, process, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.faultproxy import FaultProxy
from localcluster.programs import CONTROLLER_MANAGER, LOOPBACK, SCHEDULER
from localcluster.report import Report

AUDITOR = "audit.jobs"
_REACTION_SECONDS = 60
# One clock ahead by the longest jump (chaos.jobs.breaks) while the other one is back by as much.
_SKEW_SECONDS = 250
# A kind of fault of requests is on for so long, at least and at most.
_REQUESTS_SECONDS = (0.5, 2.5)


@dataclass(frozen=True, slots=True)
class JobStage:
    """`stage` has the control plane, the gang schedulers and the auditors; the second one audits jobs."""

    stage: Stage
    controllers: Sequence[Controller]
    crowd: Crowd
    clocks: Clocks
    disk: Disk

    @property
    def leader(self) -> Controller:
        """Whoever it is, the first one in doubt."""
        return leader_of(self.stage.api, self.controllers) or self.controllers[0]

    @property
    def proxies(self) -> Sequence[FaultProxy]:
        return [self.stage.proxy, *(each.proxy for each in self.controllers)]

    def verdicts(self) -> list[dict[str, Any]]:
        """What each auditor saw, that of gangs first. Ends them."""
        return [self.stage.verdict(number) for number in range(len(self.stage.auditors))]

    def keep_logs(self, folder: Path) -> Path:
        """A copy of all logs, which otherwise end with the stage."""
        shutil.copytree(self.stage.logs, folder / "logs")
        return shutil.copytree(self.disk.folder, folder / "controllers")


@contextlib.contextmanager
def open_job_stage(seed: int, disk: Disk, report: Report) -> Iterator[JobStage]:
    """Everything at work. Raises LocalClusterError."""
    crowds: list[Crowd] = []
    actor = Actor(lambda name: crowds[0].plan_of(name) if crowds else None)
    clocks = Clocks(disk.folder.parent / "clocks", report)
    requests = RequestFaults(seed, TROUBLES, TARGETS, _REQUESTS_SECONDS)
    with contextlib.ExitStack() as open_:
        stage = open_.enter_context(open_stage(requests, report, Props(actor, clocks.environment)))
        crowds.append(Crowd(stage.api, NAMESPACE))
        crowds[0].start()
        open_.callback(crowds[0].stop)
        names = REPLICAS if process.may_name_hosts() else ("",)
        controllers = [open_.enter_context(_controller(stage, name, clocks, disk)) for name in names]
        wait(lambda: leader_of(stage.api, controllers) is not None, "no controller leads")
        _watch(stage, controllers)
        kept = stage.logs / "history.jsonl"
        flags = (f"--reaction-seconds={_REACTION_SECONDS}", f"--skew-seconds={_SKEW_SECONDS}", f"--keep={kept}")
        stage.auditors.append(start_auditor(stage.plane, AUDITOR, *flags))
        yield JobStage(stage, controllers, crowds[0], clocks, disk)


@contextlib.contextmanager
def _controller(stage: Stage, name: str, clocks: Clocks, disk: Disk) -> Iterator[Controller]:
    """One, kept alive; without a `name` it has that of this machine."""
    plane = stage.plane
    with FaultProxy(plane.server) as proxy, ports.reserve(2, LOOPBACK) as served:
        proxy.choose = stage.requests.choose
        folder = plane.folder / f"controller-{name}"
        state.make_private(folder)
        kubeconfig = proxy.kubeconfig(folder, plane.token)
        log = disk.folder / f"controller-{name}.log"
        program = controller_program(plane, name, served, kubeconfig, log, clocks.environment(name))
        kept = Kept(program)
        kept.start()
        try:
            wait(program.is_ready, f"the controller did not become ready: see {log}")
            yield Controller(name or os.uname().nodename, kept, program, proxy)
        finally:
            kept.stop()


def _watch(stage: Stage, controllers: Sequence[Controller]) -> None:
    """Nobody is to be blamed for what cannot be without these."""
    stage.watchman.watch(Pulse(Api.from_kubeconfig(stage.plane.kubeconfig), controllers).beats)
    stage.watchman.watch(lambda: _are_healthy(stage.plane))


def _are_healthy(plane: ControlPlane) -> bool:
    return plane.is_healthy(CONTROLLER_MANAGER) and plane.is_healthy(SCHEDULER)
