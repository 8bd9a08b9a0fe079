"""The test environment: a control plane with fake nodes, two gang schedulers, and the auditor.

All programs are processes; those under test may be killed and restarted at any time. The two replicas elect a leader as
in the shipped configuration, each with its own host name and kube-scheduler. A proxy in this process, between the gang
schedulers and the API server, injects faults of requests. Everything ends with the block, also after an error.

If the user may not set host names (`process.may_name_hosts`), there is only one gang scheduler.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.mirror import GANGS, PODS
from chaos.outages import OutageReporter, leader_name
from chaos.requests import RequestFaults
from chaos.supervised import LEADER_ELECTION, LEASE, LEASE_NAMESPACE, Replica, SupervisedProgram
from localcluster import binaries, ports, process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.crds import install_crds
from localcluster.errors import LocalClusterError
from localcluster.extender import extender_beside
from localcluster.fakekubelet import Behaviour, FakeKubelet, by_annotations
from localcluster.faultproxy import FaultProxy
from localcluster.gangscheduler import GangScheduler
from localcluster.ourprogram import EXTENDER
from localcluster.programs import LOOPBACK, Options
from localcluster.report import Report

NAMESPACE, OTHERS = "chaos", "others"
REPLICAS = ("replica-a", "replica-b")
NODES = tuple(f"node-{number:02d}" for number in range(10))
NODE: dict[str, str] = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "30"}

# Short, so that a run contains many timeouts. The auditor has the same limits, plus the time that a killed program
# needs.
BIND_TIMEOUT_SECONDS = 6.0
STARVATION_TIMEOUT_SECONDS = 10.0
HTTP_TIMEOUT_SECONDS = 30
BIND_DEADLINE_SECONDS = 40.0
FIT_GRACE_SECONDS = 12.0
# A watch delivers the pod of another scheduler within this time, on a busy machine too.
RACE_SECONDS = 1.0
FLAGS = (
    f"--bind-timeout={BIND_TIMEOUT_SECONDS:g}s",
    f"--starvation-timeout={STARVATION_TIMEOUT_SECONDS:g}s",
    f"--extender-http-timeout={HTTP_TIMEOUT_SECONDS}s",
    f"--leader-lease-namespace={LEASE_NAMESPACE}",
    f"--leader-lease-name={LEASE}",
)
_AUDITOR_FLAGS = (
    f"--bind-deadline={BIND_DEADLINE_SECONDS}",
    f"--fit-grace={FIT_GRACE_SECONDS}",
    f"--starvation-timeout={STARVATION_TIMEOUT_SECONDS}",
    f"--race={RACE_SECONDS}",
)
_QUOTA_SYNC_SECONDS = 5
_READY_SECONDS = 240.0
_AUDITOR_SECONDS = 300.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class StageOptions:
    """What a run adds: how pods end, the gang scheduler's environment on the machine of that name, and more flags of
    gang scheduler and auditor.
    """

    behaviour: Behaviour = by_annotations
    environment: Callable[[str], Mapping[str, str]] = lambda _: {}
    flags: Sequence[str] = ()
    auditor_flags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    api: Api
    plane: ControlPlane
    replicas: Sequence[Replica]
    proxy: FaultProxy
    requests: RequestFaults
    kubelet: FakeKubelet
    auditors: list[subprocess.Popen[str]]
    """All of them receive reports of outages; the first one is that of gangs."""
    outages: OutageReporter

    @property
    def logs(self) -> Path:
        return self.plane.logs

    def report_outage(self) -> None:
        """Reports to the auditors that the programs under test cannot read the cluster now."""
        _report_outage(self.auditors)

    def auditor_report(self, number: int = 0) -> dict[str, Any]:
        """Ends an auditor and returns its report. Raises LocalClusterError if there is none."""
        self.outages.stop()
        return report_of(self.auditors[number])


@contextlib.contextmanager
def open_stage(requests: RequestFaults, report: Report, options: StageOptions | None = None) -> Iterator[Stage]:
    """Starts everything. Raises LocalClusterError. Logs are kept if a run fails."""
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{os.getpid()}-chaos")
    # The quota controller and the API server write the same statuses. After a dozen conflicts in a row the controller
    # leaves a quota alone for minutes, with the usage of pods that have ended.
    quota_flags = (f"--resource-quota-sync-period={_QUOTA_SYNC_SECONDS}s",)
    plane_options = Options(unsafe_no_fsync=True, controller_manager_flags=quota_flags)
    with ControlPlane(folder, plane_options, owner=process.identify(os.getpid()), report=report) as plane:
        api = Api.from_kubeconfig(plane.kubeconfig)
        install_crds(api)
        for name in (NAMESPACE, OTHERS):
            api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        with _programs(plane, api, requests, options or StageOptions()) as found:
            yield found
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _programs(plane: ControlPlane, api: Api, requests: RequestFaults, options: StageOptions) -> Iterator[Stage]:
    kubelet = FakeKubelet(
        Api.from_kubeconfig(plane.kubeconfig), nodes=NODES, resources=NODE, behaviour=options.behaviour
    )
    with contextlib.ExitStack() as open_:
        proxy = open_.enter_context(FaultProxy(plane.server))
        proxy.choose = requests.choose
        kubeconfig = proxy.kubeconfig(plane.folder, plane.token)
        auditors = [start_auditor(plane, "audit", *_AUDITOR_FLAGS, *options.auditor_flags)]
        open_.callback(_kill_all, auditors)
        open_.enter_context(kubelet)
        names = REPLICAS if process.may_name_hosts() else ("",)
        replicas = [open_.enter_context(_replica(plane, name, kubeconfig, options)) for name in names]
        wait(lambda: leader_name(api) in [replica.name for replica in replicas], "no gang scheduler became the leader")
        paths = [path.format(NAMESPACE) for path in (GANGS, PODS)]
        outages = OutageReporter(api, paths, replicas, functools.partial(_report_outage, auditors))
        outages.start()
        open_.callback(outages.stop)
        yield Stage(api, plane, replicas, proxy, requests, kubelet, auditors, outages)


@contextlib.contextmanager
def _replica(plane: ControlPlane, name: str, kubeconfig: Path, options: StageOptions) -> Iterator[Replica]:
    """Runs both programs of a replica; without a `name` it has this machine's."""
    flags, env = (*FLAGS, *options.flags), options.environment(name)
    with ports.reserve(2, LOOPBACK) as (port, probes_port):
        extender = extender_beside(plane, port, probes_port, *flags, kubeconfig=kubeconfig, replica=name, env=env)
        scheduler = GangScheduler(
            plane,
            extender.urls[EXTENDER],
            http_timeout=f"{HTTP_TIMEOUT_SECONDS}s",
            leader_election=LEADER_ELECTION,
            replica=name,
        )
        replica = Replica(
            name or os.uname().nodename, SupervisedProgram(extender), SupervisedProgram(scheduler), extender.is_ready
        )
        for program in replica.programs:
            program.start()
        try:
            extender.wait_ready()
            yield replica
        finally:
            for program in replica.programs:
                program.stop()


def start_auditor(plane: ControlPlane, module: str, *flags: str) -> subprocess.Popen[str]:
    """Starts `python -m MODULE`, which prints one JSON line after SIGTERM."""
    # An outage may be reported before the auditor handles the signal, which must not end it.
    argv = ["sh", "-c", 'trap "" USR1; exec "$0" "$@"', sys.executable, "-m", module]
    argv += [f"--kubeconfig={plane.kubeconfig}", *flags]
    environment = {**os.environ, "PYTHONPATH": str(binaries.HACK), process.MARK: str(plane.folder.resolve())}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True)


def report_of(auditor: subprocess.Popen[str]) -> dict[str, Any]:
    """Ends an auditor and returns its report. Raises LocalClusterError if there is none."""
    auditor.send_signal(signal.SIGTERM)
    out, _ = auditor.communicate(timeout=_AUDITOR_SECONDS)
    lines = out.splitlines()
    if not lines:
        raise LocalClusterError(f"the auditor printed nothing and ended with {auditor.returncode}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _report_outage(auditors: Sequence[subprocess.Popen[str]]) -> None:
    for auditor in auditors:
        auditor.send_signal(signal.SIGUSR1)


def _kill_all(auditors: Sequence[subprocess.Popen[str]]) -> None:
    for auditor in auditors:
        auditor.kill()


def wait(condition: Callable[[], bool], message: str) -> None:
    """Waits for a condition. Raises LocalClusterError with this message after some minutes."""
    deadline = time.monotonic() + _READY_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise LocalClusterError(message)
        time.sleep(_POLL_SECONDS)
