"""The test environment of `make chaos`: chaos.stage with two controllers and an auditor of jobs.

Each controller connects to the API server through its own proxy, so that it can be disconnected alone. A controller and
a gang scheduler with the same name share a machine and its clock.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.jobs.controllers import Controller, LeaseMonitor, controller_program, leader_of
from chaos.jobs.faultplan import REQUEST_FAULTS, TARGETS
from chaos.jobs.machines import Clocks, Disk
from chaos.jobs.podoutcomes import PodOutcomes
from chaos.jobs.submitted import SubmittedJobs
from chaos.requests import RequestFaults
from chaos.stage import NAMESPACE, REPLICAS, Stage, StageOptions, open_stage, start_auditor, wait
from chaos.supervised import SupervisedProgram
from localcluster import ports, process, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.faultproxy import Choose, FaultProxy
from localcluster.programs import CONTROLLER_MANAGER, LOOPBACK, SCHEDULER
from localcluster.report import Report

AUDITOR = "audit.jobs"
_REACTION_SECONDS = 60
# One clock is ahead by the longest jump (chaos.jobs.systemfaults) while the other one is back by as much.
_SKEW_SECONDS = 250
# Minimum and maximum time that a kind of request fault lasts.
_REQUESTS_SECONDS = (0.5, 2.5)


@dataclass(frozen=True, slots=True)
class JobStage:
    """`stage` has the control plane, the gang schedulers and the auditors; the second auditor is that of jobs."""

    stage: Stage
    controllers: Sequence[Controller]
    jobs: SubmittedJobs
    clocks: Clocks
    disk: Disk

    @property
    def leader(self) -> Controller:
        """The leading controller; the first one if the leader is unknown."""
        return leader_of(self.stage.api, self.controllers) or self.controllers[0]

    @property
    def proxies(self) -> Sequence[FaultProxy]:
        return [self.stage.proxy, *(each.proxy for each in self.controllers)]

    def auditor_reports(self) -> list[dict[str, Any]]:
        """Ends the auditors and returns the report of each, that of gangs first."""
        return [self.stage.auditor_report(number) for number in range(len(self.stage.auditors))]

    def keep_logs(self, folder: Path) -> Path:
        """Copies all logs, which are otherwise deleted with the stage."""
        shutil.copytree(self.stage.logs, folder / "logs")
        return shutil.copytree(self.disk.folder, folder / "controllers")


@contextlib.contextmanager
def open_job_stage(seed: int, disk: Disk, report: Report) -> Iterator[JobStage]:
    """Starts everything. Raises LocalClusterError."""
    opened: list[SubmittedJobs] = []
    outcomes = PodOutcomes(lambda name: opened[0].plan_of(name) if opened else None)
    clocks = Clocks(disk.folder.parent / "clocks", report)
    requests = RequestFaults(seed, REQUEST_FAULTS, TARGETS, _REQUESTS_SECONDS)
    with contextlib.ExitStack() as open_:
        stage = open_.enter_context(open_stage(requests, report, StageOptions(outcomes, clocks.environment)))
        jobs = SubmittedJobs(stage.api, NAMESPACE)
        opened.append(jobs)
        jobs.start()
        open_.callback(jobs.stop)
        names = REPLICAS if process.may_name_hosts() else ("",)
        controllers = [
            open_.enter_context(
                open_controller(stage.plane, name, disk.folder, clocks.environment(name), requests.choose)
            )
            for name in names
        ]
        wait(lambda: leader_of(stage.api, controllers) is not None, "no controller became the leader")
        _add_checks(stage, controllers)
        history = stage.logs / "history.jsonl"
        flags = (f"--reaction-seconds={_REACTION_SECONDS}", f"--skew-seconds={_SKEW_SECONDS}", f"--keep={history}")
        stage.auditors.append(start_auditor(stage.plane, AUDITOR, *flags))
        yield JobStage(stage, controllers, jobs, clocks, disk)


@contextlib.contextmanager
def open_controller(
    plane: ControlPlane, name: str, logs: Path, environment: Mapping[str, str], choose: Choose | None = None
) -> Iterator[Controller]:
    """Runs a controller and restarts it whenever it ends; without a `name` it has this machine's."""
    with FaultProxy(plane.server) as proxy, ports.reserve(2, LOOPBACK) as served:
        proxy.choose = choose
        folder = plane.folder / f"controller-{name}"
        state.make_private(folder)
        kubeconfig = proxy.kubeconfig(folder, plane.token)
        log = logs / f"controller-{name}.log"
        program = controller_program(plane, name, served, kubeconfig, log, environment)
        supervised = SupervisedProgram(program)
        supervised.start()
        try:
            wait(program.is_ready, f"the controller did not become ready: see {log}")
            yield Controller(name or os.uname().nodename, supervised, program, proxy)
        finally:
            supervised.stop()


def _add_checks(stage: Stage, controllers: Sequence[Controller]) -> None:
    """Reports outages of controllers and kube-controller-manager, during which no deadline of the auditors runs."""
    stage.outages.add_check(LeaseMonitor(Api.from_kubeconfig(stage.plane.kubeconfig), controllers).is_renewed)
    stage.outages.add_check(lambda: _are_healthy(stage.plane))


def _are_healthy(plane: ControlPlane) -> bool:
    return plane.is_healthy(CONTROLLER_MANAGER) and plane.is_healthy(SCHEDULER)
