"""The test environment of chaos: a control plane with fake nodes, replicas of the programs under test, and auditors.

All programs are processes; those under test may be killed and restarted at any time. The replicas elect a leader as in
the shipped configuration. A proxy in this process, between the gang schedulers and the API server, injects faults of
requests; each controller has its own, so that it can be disconnected alone. A controller and a gang scheduler with the
same name share a machine and its clock. Everything ends with the block, also after an error.

If the user may not set host names (`process.may_name_hosts`), there is only one replica of each.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.clusters import fake_cluster
from lab.command import keep_logs, progress, wait
from lab.jobs import PodOutcomes
from lab.leases import LeaseMonitor, OutageReporter, leader_of
from lab.machines import Clocks, Disk
from lab.mirror import GANGS, PODS
from lab.programs import (
    CONTROLLER_LEASE,
    CONTROLLER_LEASE_SECONDS,
    GANG_LEASE,
    Controller,
    GangReplica,
    controller_replica,
    gang_replica,
    replica_names,
)
from lab.requests import RequestFaults
from lab.submitted import SubmittedJobs
from localcluster import binaries, process
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.faultproxy import FaultProxy
from localcluster.programs import CONTROLLER_MANAGER, SCHEDULER, Options

# The namespaces of the two tenants, of whom the first has most jobs, and that of pods of others.
NAMESPACE, TENANT, OTHERS = "chaos", "tenant", "others"
NODES = tuple(f"node-{number:02d}" for number in range(10))
NODE: dict[str, str] = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "30"}

# Short, so that a run contains many timeouts. The auditor has the same limits, plus the time that a killed program
# needs. A watch delivers the pod of another scheduler within `--race` seconds, on a busy machine too.
_FLAGS = ("--bind-timeout=6s", "--starvation-timeout=10s")
_AUDITOR_FLAGS = ("--bind-deadline=40", "--fit-grace=12", "--starvation-timeout=10", "--race=1")
_JOB_AUDITOR = "audit.jobs"
# One clock is ahead by the longest jump (lab.faults) while the other one is back by as much.
_JOB_AUDITOR_FLAGS = ("--reaction-seconds=60", "--skew-seconds=250")
# The quota controller and the API server write the same statuses. After a dozen conflicts in a row the controller
# leaves a quota alone for minutes, with the usage of pods that have ended.
_PLANE = Options(unsafe_no_fsync=True, controller_manager_flags=("--resource-quota-sync-period=5s",))
# kube-scheduler renews every 2 s.
_STALE_SECONDS = 5.0
_AUDITOR_SECONDS = 300.0


class Auditor:
    """`python -m MODULE`, which watches the cluster and prints one JSON line after SIGTERM."""

    def __init__(self, plane: ControlPlane, module: str, *flags: str) -> None:
        # An outage may be reported before the auditor handles the signal, which must not end it.
        argv = ["sh", "-c", 'trap "" USR1; exec "$0" "$@"', sys.executable, "-m", module]
        argv += [f"--kubeconfig={plane.kubeconfig}", *flags]
        environment = {**os.environ, "PYTHONPATH": str(binaries.HACK), process.MARK: str(plane.folder.resolve())}
        self._process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
        )

    def report_outage(self) -> None:
        """Reports that the programs under test cannot read the cluster now."""
        self._process.send_signal(signal.SIGUSR1)

    def end(self) -> dict[str, Any]:
        """Ends the auditor and returns its report. Raises LocalClusterError if there is none."""
        self._process.send_signal(signal.SIGTERM)
        out, _ = self._process.communicate(timeout=_AUDITOR_SECONDS)
        lines = out.splitlines()
        if not lines:
            raise LocalClusterError(f"the auditor printed nothing and ended with {self._process.returncode}")
        report: dict[str, Any] = json.loads(lines[-1])
        return report

    def kill(self) -> None:
        self._process.kill()


def job_auditor(plane: ControlPlane, history: Path, *flags: str) -> Auditor:
    """Starts the auditor of jobs, which keeps all versions of objects in that file."""
    return Auditor(plane, _JOB_AUDITOR, *flags, f"--keep={history}")


@dataclass(frozen=True, slots=True)
class Stage:
    """`auditors` all receive reports of outages; the first one is that of gangs, and the second one that of jobs."""

    api: Api
    plane: ControlPlane
    jobs: SubmittedJobs
    clocks: Clocks
    disk: Disk
    replicas: Sequence[GangReplica]
    proxy: FaultProxy
    requests: RequestFaults
    auditors: list[Auditor]
    outages: OutageReporter
    controllers: Sequence[Controller]

    @property
    def proxies(self) -> Sequence[FaultProxy]:
        return [self.proxy, *(controller.proxy for controller in self.controllers)]

    @property
    def gang_leader(self) -> GangReplica:
        """The leading gang scheduler; the first one if the leader is unknown."""
        return leader_of(self.api, GANG_LEASE, self.replicas) or self.replicas[0]

    @property
    def leader(self) -> Controller:
        """The leading controller; the first one if the leader is unknown."""
        return leader_of(self.api, CONTROLLER_LEASE, self.controllers) or self.controllers[0]

    def report_outage(self) -> None:
        """Reports to the auditors that the programs under test cannot read the cluster now."""
        _each(Auditor.report_outage, self.auditors)

    def keep_logs(self) -> Path:
        """Copies all logs, which are otherwise deleted with the stage."""
        return keep_logs("chaos", self.plane.logs, self.disk.folder)

    def audited(self) -> list[dict[str, Any]]:
        """Ends the auditors and returns the report of each, without the details of races."""
        self.outages.stop()
        gangs, *others = [auditor.end() for auditor in self.auditors]
        return [{**gangs, "races": len(gangs["races"])}, *others]

    @property
    def gang_programs_ended(self) -> int:
        """How many programs of gang schedulers have ended by themselves."""
        return sum(program.ended_by_itself for replica in self.replicas for program in replica.programs)


def _each(action: Callable[[Auditor], None], auditors: Sequence[Auditor]) -> None:
    for auditor in auditors:
        action(auditor)


@contextlib.contextmanager
def open_stage(seed: int, disk: Disk, flags: Sequence[str] = (), auditor_flags: Sequence[str] = ()) -> Iterator[Stage]:
    """Starts everything; gang schedulers and their auditor have these further flags. Raises LocalClusterError."""
    outcomes = PodOutcomes()
    clocks = Clocks(disk.folder.parent / "clocks", progress)
    requests = RequestFaults(seed)
    with contextlib.ExitStack() as open_:
        plane, api = open_.enter_context(fake_cluster("chaos", _PLANE, NODES, NODE, outcomes))
        for name in (NAMESPACE, TENANT, OTHERS):
            api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        jobs = SubmittedJobs(api, NAMESPACE, TENANT)
        outcomes.plan_of = jobs.plan_of
        jobs.start()
        open_.callback(jobs.stop)
        proxy = open_.enter_context(FaultProxy(plane.server))
        proxy.choose = requests.choose
        kubeconfig = proxy.kubeconfig(plane.folder, plane.token)
        auditors = [Auditor(plane, "audit", *_AUDITOR_FLAGS, *auditor_flags)]
        open_.callback(_each, Auditor.kill, auditors)
        replicas = [
            open_.enter_context(gang_replica(plane, name, kubeconfig, (*_FLAGS, *flags), clocks.environment(name)))
            for name in replica_names()
        ]
        wait(lambda: leader_of(api, GANG_LEASE, replicas) is not None, "no gang scheduler became the leader")
        outages = OutageReporter(
            api,
            [path.format(NAMESPACE) for path in (GANGS, PODS)],
            functools.partial(_each, Auditor.report_outage, auditors),
        )
        outages.checks.append(LeaseMonitor(api, GANG_LEASE, replicas, _STALE_SECONDS).is_renewed)
        open_.enter_context(outages)
        controllers = [
            open_.enter_context(controller_replica(plane, name, disk.folder, clocks.environment(name), requests.choose))
            for name in replica_names()
        ]
        wait(lambda: leader_of(api, CONTROLLER_LEASE, controllers) is not None, "no controller became the leader")
        monitor = LeaseMonitor(
            Api.from_kubeconfig(plane.kubeconfig), CONTROLLER_LEASE, controllers, CONTROLLER_LEASE_SECONDS
        )
        outages.checks += (monitor.is_renewed, lambda: _are_healthy(plane))
        auditors.append(job_auditor(plane, plane.logs / "history.jsonl", *_JOB_AUDITOR_FLAGS))
        yield Stage(api, plane, jobs, clocks, disk, replicas, proxy, requests, auditors, outages, controllers)


def _are_healthy(plane: ControlPlane) -> bool:
    return plane.is_healthy(CONTROLLER_MANAGER) and plane.is_healthy(SCHEDULER)
