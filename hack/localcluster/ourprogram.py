"""Runs `tfjob-controller run`, or another of its commands that serves until it is terminated, as a process.

    with ports.reserve(2, LOOPBACK) as (probes, metrics):
        served = {PROBES: probes, METRICS: metrics}
        program = OurProgram("run", kubeconfig, served, "--qps=0", log=logs / "controller.log", mark=folder)
        program.start()
        program.wait_ready()
        program.page(METRICS, "/metrics")
        program.end(grace_seconds=30.0)

It can be killed and started again on the same ports. It carries the mark of its stack (localcluster.process), so that
it is ended with the stack in any case.

Not thread-safe, except for `is_ready` and `page`. Errors are LocalClusterError.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import urllib3

from localcluster import probe, process
from localcluster.controlplane import READY_TIMEOUT_SECONDS
from localcluster.errors import LocalClusterError
from localcluster.programs import LOOPBACK

# Its servers, by the flags that set their addresses.
PROBES, METRICS, DEBUG, EXTENDER = "health-probe", "metrics", "debug", "extender"
_POLL_SECONDS = 0.05
_PAGE_SECONDS = 30.0


class OurProgram:
    """One process of the program, which may have ended."""

    def __init__(
        self,
        command: str,
        kubeconfig: Path,
        served: Mapping[str, int],
        *flags: str,
        log: Path,
        mark: Path,
        replica: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`served` has the port of each server, PROBES among them; without METRICS no metrics are served.

        Its output is appended to `log`. With several replicas, `replica` is the host name of each. `env` is added to
        its environment.
        """
        self.urls = {server: f"http://{LOOPBACK}:{port}" for server, port in served.items()}
        self._name = f"tfjob-controller {command}"
        self._log = log
        self._mark = mark
        self._identity: process.Identity | None = None
        argv = [sys.executable, "-m", "tfjob_controller", command, f"--kubeconfig={kubeconfig}"]
        argv += [f"--{server}-bind-address={LOOPBACK}:{port}" for server, port in served.items()]
        argv += [*([] if METRICS in served else [f"--{METRICS}-bind-address=0"]), *flags]
        argv = process.with_environment(env or {}, argv)
        self._argv = process.on_host(replica, argv) if replica else argv

    @property
    def pid(self) -> int:
        """The id of the process that was started last. Raises LocalClusterError if there is none, or after `end`."""
        if self._identity is None:
            raise LocalClusterError(f"{self._name} does not run")
        return self._identity.pid

    @property
    def identity(self) -> process.Identity | None:
        """The identity of the process that was started last; None after `end`."""
        return self._identity

    def start(self) -> None:
        """Starts the process without waiting until it is ready."""
        try:
            self._identity = process.spawn(self._argv, log=self._log, mark=self._mark)
        except OSError as error:
            raise LocalClusterError(f"{self._name} cannot be started: {error}") from error

    def wait_ready(self, poll_seconds: float = _POLL_SECONDS) -> None:
        """Waits until it is ready. Raises LocalClusterError if it ends or takes too long."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while not self.is_ready():
            if self._identity is None or not process.is_alive(self._identity):
                raise LocalClusterError(f"{self._name} ended: see {self._log}")
            if time.monotonic() > deadline:
                raise LocalClusterError(f"{self._name} did not become ready: see {self._log}")
            time.sleep(poll_seconds)

    def is_ready(self) -> bool:
        """Reports whether its readiness probe succeeds now."""
        return probe.is_healthy(f"{self.urls[PROBES]}/readyz")

    def page(self, server: str, path: str) -> str:
        """Returns the body of a page. Raises urllib3's HTTPError."""
        return urllib3.request("GET", f"{self.urls[server]}{path}", timeout=_PAGE_SECONDS).data.decode()

    def end(self, *, grace_seconds: float = 0.0) -> None:
        """Ends the process with SIGTERM if there is a grace period, then with SIGKILL; returns when it has ended."""
        if self._identity is not None:
            process.end([self._identity], grace_seconds=grace_seconds)
            self._identity = None

    def kill(self) -> None:
        """Kills the process like a crash."""
        self.end()
