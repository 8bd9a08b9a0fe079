"""`tfjob-controller extender` as a process beside a control plane: killed and started again on the same ports.

    with ports.reserve(2) as (port, probes_port):
        extender = Extender(plane, port, probes_port, "--bind-timeout=6s")
        extender.start()
        extender.wait_ready()

Threads: one at a time. Errors: LocalClusterError.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import urllib3

from localcluster import process
from localcluster.controlplane import READY_TIMEOUT_SECONDS, ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.programs import LOOPBACK

_POLL_SECONDS = 0.05


class Extender:
    """One that runs, or ran."""

    def __init__(
        self,
        plane: ControlPlane,
        port: int,
        probes_port: int,
        *flags: str,
        kubeconfig: Path | None = None,
        replica: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`kubeconfig` is another than the control plane's; of several each has a `replica`, its machine's name.

        `env` is added to its environment.
        """
        self.url = f"http://{LOOPBACK}:{port}"
        self._plane = plane
        self._probes = f"http://{LOOPBACK}:{probes_port}/readyz"
        self._identity: process.Identity | None = None
        self._log = plane.logs / (f"extender-{replica}.log" if replica else "extender.log")
        argv = [sys.executable, "-m", "tfjob_controller", "extender", f"--kubeconfig={kubeconfig or plane.kubeconfig}"]
        argv += ["--qps=0", f"--extender-bind-address={LOOPBACK}:{port}", "--metrics-bind-address=0"]
        argv += [f"--health-probe-bind-address={LOOPBACK}:{probes_port}", *flags]
        argv = process.with_environment(env or {}, argv)
        self._argv = process.on_host(replica, argv) if replica else argv

    @property
    def pid(self) -> int:
        """Of the process that runs now. Raises LocalClusterError if none does."""
        if self._identity is None:
            raise LocalClusterError("the gang scheduler does not run")
        return self._identity.pid

    @property
    def identity(self) -> process.Identity | None:
        """Of the process that was started last."""
        return self._identity

    def start(self) -> None:
        """Returns at once."""
        self._identity = process.spawn(self._argv, log=self._log, mark=self._plane.folder)

    def wait_ready(self) -> None:
        """Raises LocalClusterError if it ends, or takes too long."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while not self.is_ready():
            if self._identity is None or not process.is_alive(self._identity) or time.monotonic() > deadline:
                raise LocalClusterError(f"the gang scheduler does not become ready: see {self._plane.logs}")
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """SIGKILL, as a crash would be; returns when it is gone."""
        if self._identity is not None:
            process.end([self._identity])
            self._identity = None

    def is_ready(self) -> bool:
        """Whether it says so now."""
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            return urllib3.request("GET", self._probes, retries=False, timeout=1.0).status == 200
        return False
