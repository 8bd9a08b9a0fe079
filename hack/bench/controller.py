"""The controller as users run it: a process of its own, with what it costs in time, memory and requests."""

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

# The time until it is ready is measured.
_POLL_SECONDS = 0.01
_STOP_SECONDS = 60.0
# What it says would be written while it is measured.
_LOG = Path(os.devnull)
_REQUESTS = re.compile(r'^rest_client_requests_total\{[^}]*method="(\w+)"[^}]*\} (\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Controller:
    """One that runs."""

    program: OurProgram

    @property
    def pid(self) -> int:
        return self.program.pid

    def wait_ready(self) -> None:
        """Until `/readyz` says yes. Raises LocalClusterError."""
        self.program.wait_ready(_POLL_SECONDS)

    def requests(self) -> dict[str, int]:
        """What it has sent so far by its own count, watches and events included, by method."""
        counts: dict[str, int] = {}
        for method, count in _REQUESTS.findall(self.program.page(METRICS, "/metrics")):
            counts[method] = counts.get(method, 0) + int(float(count))
        return counts

    def cpu_seconds(self) -> float:
        """Of all its threads, in user and system mode, since its start."""
        return usage.cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        return usage.resident_bytes(self.pid)


@contextlib.contextmanager
def controller(kubeconfig: Path, *flags: str) -> Iterator[Controller]:
    """Start one with these flags; it is stopped at the end."""
    with ports.reserve(2, LOOPBACK) as (probes, metrics):
        served = {PROBES: probes, METRICS: metrics}
        program = OurProgram("run", kubeconfig, served, *flags, log=_LOG, mark=kubeconfig.parent)
        program.start()
        try:
            yield Controller(program)
        finally:
            program.end(grace_seconds=_STOP_SECONDS)
