"""A second kube-scheduler beside that of a control plane, which calls an extender to place the pods of gangs.

    with GangScheduler(plane, "http://127.0.0.1:8888"):
        ...                       # pods with schedulerName `gang-scheduler` are placed and bound through the extender

It is an unmodified kube-scheduler with the configuration of manifests/base/extender; `ENVIRONMENT` is that of its
Deployment.
Not thread-safe. Errors are LocalClusterError.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from localcluster import binaries, ports, probe, process
from localcluster.controlplane import READY_TIMEOUT_SECONDS, ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.program import HACK
from localcluster.programs import LOOPBACK, SCHEDULER, User
from localcluster.state import write_private

NAME = "gang-scheduler"
# As in the Deployment. Go's default collects garbage whenever the heap has doubled, which takes a tenth of this
# program's CPU; memory that is collected late is no loss up to the limit, near which Go collects as often as it must.
ENVIRONMENT: Mapping[str, str] = {"GOGC": "400", "GOMEMLIMIT": "1600MiB"}
_SHIPPED = HACK.parent / "manifests/base/extender/scheduler.yaml"
_ALONE: Mapping[str, Any] = {"leaderElect": False}
_SCHEDULER_USER = User("system:kube-scheduler")
_POLL_SECONDS = 0.05


class GangScheduler:
    """A kube-scheduler process, which may have ended."""

    def __init__(
        self,
        plane: ControlPlane,
        extender_url: str,
        *,
        http_timeout: str = "",
        kubeconfig: Path | None = None,
        leader_election: Mapping[str, Any] = _ALONE,
        replica: str = "",
        extender_tls: Mapping[str, str] | None = None,
    ) -> None:
        """`kubeconfig` replaces that of kube-scheduler; with several replicas, `replica` is the host name of each.

        `extender_tls` is the extender's tlsConfig: caFile, certFile and keyFile.
        """
        name = f"{NAME}-{replica}" if replica else NAME
        self._plane = plane
        self._replica = replica
        self._config = plane.folder / f"{name}.json"
        self._log = plane.logs / f"{name}.log"
        self._identity: process.Identity | None = None
        # That of health and metrics, of the process that was started last; it speaks TLS.
        self.port = 0
        config = yaml.safe_load(_SHIPPED.read_text())
        config["leaderElection"] = dict(leader_election)
        config["clientConnection"]["kubeconfig"] = str(kubeconfig or plane.kubeconfig_of(_SCHEDULER_USER))
        (extender,) = config["extenders"]
        extender["urlPrefix"] = extender_url
        if http_timeout:
            extender["httpTimeout"] = http_timeout
        if extender_tls:
            extender |= {"enableHTTPS": True, "tlsConfig": dict(extender_tls)}
        write_private(self._config, json.dumps(config, indent=2).encode())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The id of the running process. Raises LocalClusterError if there is none."""
        if self._identity is None:
            raise LocalClusterError(f"{NAME} does not run")
        return self._identity.pid

    @property
    def identity(self) -> process.Identity | None:
        """The identity of the process that was started last."""
        return self._identity

    def start(self) -> None:
        """Starts the process and waits until it is ready."""
        with ports.reserve(1, LOOPBACK) as (port,):
            flags = [f"--config={self._config}", "--authentication-skip-lookup"]
            flags += [f"--bind-address={LOOPBACK}", f"--secure-port={port}"]
            self.port = port
            argv = [str(binaries.ensure(SCHEDULER)), *flags]
            argv = process.on_host(self._replica, argv) if self._replica else argv
            folder = self._plane.folder
            self._identity = process.spawn(argv, log=self._log, mark=folder, cwd=folder, env=ENVIRONMENT)
            deadline = time.monotonic() + READY_TIMEOUT_SECONDS
            while not probe.is_healthy(f"https://{LOOPBACK}:{port}/healthz"):
                if not process.is_alive(self._identity) or time.monotonic() > deadline:
                    raise LocalClusterError(f"{NAME} did not become ready: see its log, {self._log}")
                time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """Kills the process as a crash would, and returns when it has ended."""
        if self._identity is not None:
            process.end([self._identity])
            self._identity = None
