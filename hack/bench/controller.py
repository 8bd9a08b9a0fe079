"""Runs the controller as a process, as users do, and measures its CPU, memory and requests."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import usage
from localcluster import ports
from localcluster.ourprogram import METRICS, PROBES, OurProgram
from localcluster.programs import LOOPBACK

# Short, since the time until it is ready is measured.
_POLL_SECONDS = 0.01
_STOP_SECONDS = 60.0
# Writing a log would affect the measurement.
_LOG = Path(os.devnull)
_REQUESTS = re.compile(r'^rest_client_requests_total\{[^}]*method="(\w+)"[^}]*\} (\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Controller:
    """A running controller."""

    program: OurProgram

    @property
    def pid(self) -> int:
        return self.program.pid

    def wait_ready(self) -> None:
        """Waits until `/readyz` succeeds. Raises LocalClusterError."""
        self.program.wait_ready(_POLL_SECONDS)

    def requests(self) -> dict[str, int]:
        """Returns the requests that it has sent by its own count, by method, including watches and events."""
        counts: dict[str, int] = {}
        for method, count in _REQUESTS.findall(self.program.page(METRICS, "/metrics")):
            counts[method] = counts.get(method, 0) + int(float(count))
        return counts

    def cpu_seconds(self) -> float:
        """Returns the CPU time of all its threads since its start, in user and system mode."""
        return usage.cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        return usage.resident_bytes(self.pid)


@contextlib.contextmanager
def controller(kubeconfig: Path, *flags: str) -> Iterator[Controller]:
    """Runs a controller with these flags until the end of the block."""
    with ports.reserve(2, LOOPBACK) as (probes, metrics):
        served = {PROBES: probes, METRICS: metrics}
        program = OurProgram("run", kubeconfig, served, *flags, log=_LOG, mark=kubeconfig.parent)
        program.start()
        try:
            yield Controller(program)
        finally:
            program.end(grace_seconds=_STOP_SECONDS)
