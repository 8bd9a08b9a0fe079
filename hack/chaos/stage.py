"""Where it plays: a control plane with fake nodes, two gang schedulers, each with its kube-scheduler, and the auditor.

All of them are processes of their own; those under test may be killed and started again at any time. The two replicas
elect a leader as the shipped ones do: each has a machine's name of its own. Between the gang schedulers and the API
server is a proxy, in this process, that breaks requests. Everything ends with the block, whatever happens.

Where this user may not give machines' names (`process.may_name_hosts`) there is one gang scheduler, which leads alone.
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
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.kept import LEADER_ELECTION, LEASE, LEASE_NAMESPACE, Kept, Replica
from chaos.picture import GANGS, PODS
from chaos.requests import RequestFaults
from chaos.watchman import Watchman, leader_name
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

# Short, so that a run sees many of them; the auditor is told the same, and allows for a killed program's absence.
BIND_TIMEOUT_SECONDS = 6.0
STARVATION_TIMEOUT_SECONDS = 10.0
HTTP_TIMEOUT_SECONDS = 30
BIND_DEADLINE_SECONDS = 40.0
FIT_GRACE_SECONDS = 12.0
# A watch tells a scheduler of another one's pod within this time, on a busy machine too.
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
_READY_SECONDS = 240.0
_AUDITOR_SECONDS = 300.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Props:
    """What a run brings along: how pods end, and variables of the gang scheduler on a machine of that name."""

    behaviour: Behaviour = by_annotations
    environment: Callable[[str], Mapping[str, str]] = lambda _: {}


@dataclass(frozen=True, slots=True)
class Stage:
    api: Api
    plane: ControlPlane
    replicas: Sequence[Replica]
    proxy: FaultProxy
    requests: RequestFaults
    kubelet: FakeKubelet
    auditors: list[subprocess.Popen[str]]
    """All hear of outages; the first one audits gangs."""
    watchman: Watchman

    @property
    def logs(self) -> Path:
        return self.plane.logs

    def tell_outage(self) -> None:
        """Those under test know nothing for a moment: the auditors are to hear of it."""
        _tell_outage(self.auditors)

    def verdict(self, number: int = 0) -> dict[str, Any]:
        """End an auditor; what it saw. Raises LocalClusterError if it does not say."""
        self.watchman.stop()
        auditor = self.auditors[number]
        auditor.send_signal(signal.SIGTERM)
        out, _ = auditor.communicate(timeout=_AUDITOR_SECONDS)
        lines = out.splitlines()
        if not lines:
            raise LocalClusterError(f"the auditor printed nothing and ended with {auditor.returncode}")
        found: dict[str, Any] = json.loads(lines[-1])
        return found


@contextlib.contextmanager
def open_stage(requests: RequestFaults, report: Report, props: Props | None = None) -> Iterator[Stage]:
    """Everything at work. Raises LocalClusterError. The logs stay where a run failed."""
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{os.getpid()}-chaos")
    options = Options(unsafe_no_fsync=True)
    with ControlPlane(folder, options, owner=process.identify(os.getpid()), report=report) as plane:
        api = Api.from_kubeconfig(plane.kubeconfig)
        install_crds(api)
        for name in (NAMESPACE, OTHERS):
            api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        with _programs(plane, api, requests, props or Props()) as found:
            yield found
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _programs(plane: ControlPlane, api: Api, requests: RequestFaults, props: Props) -> Iterator[Stage]:
    kubelet = FakeKubelet(Api.from_kubeconfig(plane.kubeconfig), nodes=NODES, resources=NODE, behaviour=props.behaviour)
    with contextlib.ExitStack() as open_:
        proxy = open_.enter_context(FaultProxy(plane.server))
        proxy.choose = requests.choose
        kubeconfig = proxy.kubeconfig(plane.folder, plane.token)
        auditors = [start_auditor(plane, "audit", *_AUDITOR_FLAGS)]
        open_.callback(_kill_all, auditors)
        open_.enter_context(kubelet)
        names = REPLICAS if process.may_name_hosts() else ("",)
        replicas = [open_.enter_context(_replica(plane, name, kubeconfig, props.environment(name))) for name in names]
        wait(lambda: leader_name(api) in [replica.name for replica in replicas], "no gang scheduler leads")
        paths = [path.format(NAMESPACE) for path in (GANGS, PODS)]
        watchman = Watchman(api, paths, replicas, functools.partial(_tell_outage, auditors))
        watchman.start()
        open_.callback(watchman.stop)
        yield Stage(api, plane, replicas, proxy, requests, kubelet, auditors, watchman)


@contextlib.contextmanager
def _replica(plane: ControlPlane, name: str, kubeconfig: Path, env: Mapping[str, str]) -> Iterator[Replica]:
    """Both programs of one, kept alive; without a `name` it has that of this machine. `env` is the extender's."""
    with ports.reserve(2, LOOPBACK) as (port, probes_port):
        extender = extender_beside(plane, port, probes_port, *FLAGS, kubeconfig=kubeconfig, replica=name, env=env)
        scheduler = GangScheduler(
            plane,
            extender.urls[EXTENDER],
            http_timeout=f"{HTTP_TIMEOUT_SECONDS}s",
            leader_election=LEADER_ELECTION,
            replica=name,
        )
        replica = Replica(name or os.uname().nodename, Kept(extender), Kept(scheduler), extender.is_ready)
        for program in replica.programs:
            program.start()
        try:
            extender.wait_ready()
            yield replica
        finally:
            for program in replica.programs:
                program.stop()


def start_auditor(plane: ControlPlane, module: str, *flags: str) -> subprocess.Popen[str]:
    """`python -m MODULE`, which says one JSON line when it is told to end."""
    # An outage may be told before it listens, and must not end it.
    argv = ["sh", "-c", 'trap "" USR1; exec "$0" "$@"', sys.executable, "-m", module]
    argv += [f"--kubeconfig={plane.kubeconfig}", *flags]
    environment = {**os.environ, "PYTHONPATH": str(binaries.HACK), process.MARK: str(plane.folder.resolve())}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True)


def _tell_outage(auditors: Sequence[subprocess.Popen[str]]) -> None:
    for auditor in auditors:
        auditor.send_signal(signal.SIGUSR1)


def _kill_all(auditors: Sequence[subprocess.Popen[str]]) -> None:
    for auditor in auditors:
        auditor.kill()


def keep_logs(stage: Stage) -> Path:
    """A copy of the logs, which otherwise end with the stage."""
    return shutil.copytree(stage.logs, Path(tempfile.mkdtemp(prefix="chaos-")) / "logs")


def wait(is_so: Callable[[], bool], otherwise: str) -> None:
    """Raises LocalClusterError, with these words, if it is not so after some minutes."""
    deadline = time.monotonic() + _READY_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise LocalClusterError(otherwise)
        time.sleep(_POLL_SECONDS)
