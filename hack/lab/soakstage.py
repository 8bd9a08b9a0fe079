"""The environment of a soak: a control plane with fake nodes, and both programs as processes with default flags.

Pods without containers have logs of a line with metrics every second until the pod ends, so that logs are followed too.
The API server requests them over HTTPS, as from a kubelet. Everything ends with the block.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from werkzeug.serving import make_server

from lab.clusters import fake_cluster
from lab.jobs import PodOutcomes
from lab.programs import running
from lab.submitted import SubmittedJobs
from localcluster import ports
from localcluster.api import Api
from localcluster.certificates import of_loopback
from localcluster.controlplane import ControlPlane
from localcluster.extender import extender_beside
from localcluster.gangscheduler import GangScheduler
from localcluster.ourprogram import DEBUG, EXTENDER, METRICS, PROBES, OurProgram
from localcluster.podstatus import Outcome
from localcluster.programs import LOOPBACK, Options

NAMESPACE = "soak"
NODES = tuple(f"node-{number}" for number in range(4))
NODE: Mapping[str, str] = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "110"}
# With the default of an hour, Events would be most of what etcd holds.
_OPTIONS = Options(apiserver_flags=("--event-ttl=5m",), unsafe_no_fsync=True)
_LINE_SECONDS = 1.0
_MOST_KNOWN = 1000


@dataclass(frozen=True, slots=True)
class Stage:
    """`programs` are the controller, which reports what it remembers, and the extender, by name."""

    api: Api
    plane: ControlPlane
    jobs: SubmittedJobs
    programs: Mapping[str, OurProgram]


@contextlib.contextmanager
def open_stage() -> Iterator[Stage]:
    """Starts everything. Raises LocalClusterError."""
    with contextlib.ExitStack() as open_:
        logs = PodLogs(Path(open_.enter_context(tempfile.TemporaryDirectory())))
        open_.enter_context(logs.serving())
        outcomes = PodOutcomes()

        def behaviour(pod: dict[str, Any], attempt: int) -> Outcome:
            outcome = outcomes(pod, attempt)
            logs.expect(pod["metadata"]["name"], outcome.after_seconds or 0.0)
            return outcome

        plane, api = open_.enter_context(fake_cluster("soak", _OPTIONS, NODES, NODE, behaviour))
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        jobs = SubmittedJobs(api, NAMESPACE)
        outcomes.plan_of = jobs.plan_of
        endpoints = {"kubeletEndpoint": {"Port": logs.port}}
        status = {"addresses": [{"type": "InternalIP", "address": LOOPBACK}], "daemonEndpoints": endpoints}
        for node in NODES:
            api.patch(f"/api/v1/nodes/{node}/status", {"status": status})
        extender, controller = open_.enter_context(_extender(plane)), open_.enter_context(_controller(plane))
        jobs.start()
        open_.callback(jobs.stop)
        yield Stage(api, plane, jobs, {"extender": extender, "controller": controller})


@contextlib.contextmanager
def _extender(plane: ControlPlane) -> Iterator[OurProgram]:
    """Runs the extender with its kube-scheduler."""
    with ports.reserve(3, LOOPBACK) as (port, probes, metrics):
        extender = extender_beside(plane, port, probes, "--qps=1000", more_served={METRICS: metrics})
        with running(extender), GangScheduler(plane, extender.urls[EXTENDER]):
            yield extender


@contextlib.contextmanager
def _controller(plane: ControlPlane) -> Iterator[OurProgram]:
    with ports.reserve(3, LOOPBACK) as (probes, metrics, debug):
        served, log = {PROBES: probes, METRICS: metrics, DEBUG: debug}, plane.logs / "controller.log"
        controller = OurProgram("run", plane.kubeconfig, served, log=log, mark=plane.folder)
        with running(controller):
            yield controller


class PodLogs:
    """An HTTPS server of the logs (see the module). Threads: one for each log that is read."""

    def __init__(self, folder: Path) -> None:
        """Creates the server; certificate and key are written to `folder`."""
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._ends: dict[str, float] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        chain, key = of_loopback(folder, "kubelet")
        self._server = make_server(LOOPBACK, 0, self._serve, threaded=True, ssl_context=(str(chain), str(key)))

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        threading.Thread(target=self._server.serve_forever, name="soak-logs", daemon=True).start()
        try:
            yield
        finally:
            self._stopping.set()
            self._server.shutdown()

    @property
    def port(self) -> int:
        return self._server.server_port

    def expect(self, pod: str, seconds: float) -> None:
        """Sets that the pod of that name ends after so many seconds."""
        with self._lock:
            while len(self._ends) >= _MOST_KNOWN:
                self._ends.pop(next(iter(self._ends)))
            self._ends[pod] = time.monotonic() + seconds

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        """Serves `/containerLogs/<namespace>/<pod>/<container>`: yields the lines as they are written."""
        start_response("200 OK", [("Content-Type", "text/plain")])
        with self._lock:
            end = self._ends.get(environ["PATH_INFO"].split("/")[-2], 0.0)
        for step in range(1, 10**6):
            timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
            yield f"{timestamp} step={step} loss=0.{step % 1000:03d} accuracy=0.5\n".encode()
            if time.monotonic() >= end or self._stopping.wait(min(_LINE_SECONDS, end - time.monotonic())):
                return
