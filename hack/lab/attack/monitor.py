"""Checks every second whether a program runs, holds its Lease and answers its probes, as kubelets do."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from typing import Any

import urllib3

from bench import usage
from lab.attack.stage import Attacked
from lab.background import Background
from localcluster.api import Api, RefusedError
from localcluster.ourprogram import METRICS, PROBES

# As in the Deployments: a later response counts as failed, and three failures in a row restart the container.
PROBE_SECONDS = 5.0
_POLL_SECONDS = 1.0


class Monitor(Background):
    """Checks one program in its own thread, so that one that hangs does not hide another."""

    def __init__(self, api: Api, program: Attacked) -> None:
        super().__init__(self._watch, join_seconds=2 * PROBE_SECONDS)
        self.name, self.is_alive = program.name, True
        self._api, self._program = api, program
        self._peak_bytes, self._cpu_seconds = 0, 0.0
        self._leases: list[tuple[str, int]] = []
        self._renewal_max_seconds = self._probe_max_seconds = 0.0
        self._probes = self._probes_failed = self._metrics_failed = 0

    def figures(self, seconds: float) -> dict[str, Any]:
        return {
            "limit_mb": round(self._program.limit_bytes / 1e6),
            "peak_resident_mb": round(self._peak_bytes / 1e6, 1),
            "cpu_cores": round(self._cpu_seconds / seconds, 2),
            "is_alive": self.is_alive,
            "leases": len(self._leases),
            "renewal_max_seconds": round(self._renewal_max_seconds, 1),
            "probes": self._probes,
            "probes_failed": self._probes_failed,
            "probe_max_ms": round(1000 * self._probe_max_seconds, 1),
            "metrics_failed": self._metrics_failed,
        }

    def broken(self, probe_seconds: float) -> list[str]:
        """Returns the limits that are violated."""
        bounds = {
            "has ended": not self.is_alive,
            "used more memory than its limit": not self.is_within_limit,
            "lost its lease": len(self._leases) != bool(self._program.lease),
            "did not answer probes in time": self._probes_failed > 0,
            f"took longer than {probe_seconds:g} s for a probe": self._probe_max_seconds > probe_seconds,
        }
        return [f"{self.name} {text}" for text, is_broken in bounds.items() if is_broken]

    @property
    def is_within_limit(self) -> bool:
        return self._peak_bytes <= self._program.limit_bytes

    def _watch(self) -> None:
        for _ in self.ticks(_POLL_SECONDS):
            self.is_alive = self.is_alive and self._program.is_alive
            self._measure()
            begin = time.monotonic()
            self._probes_failed += not _is_answered(self._program.url(PROBES, "/healthz"))
            self._probe_max_seconds = max(self._probe_max_seconds, time.monotonic() - begin)
            self._probes += 1
            if METRICS in self._program.plain:
                self._metrics_failed += not _is_answered(self._program.url(METRICS, "/metrics"))
            if self._program.lease:
                with contextlib.suppress(RefusedError, urllib3.exceptions.HTTPError):
                    self._look_at_lease()

    def _measure(self) -> None:
        """Reads the peak of the resident set and the CPU time, which remain known after the end of the program."""
        pid = self._program.identity.pid
        with contextlib.suppress(OSError, StopIteration, IndexError):
            self._peak_bytes, self._cpu_seconds = usage.peak_resident_bytes(pid), usage.cpu_seconds(pid)

    def _look_at_lease(self) -> None:
        spec = self._api.get(self._program.lease)["spec"]
        holder = (str(spec.get("holderIdentity")), int(spec.get("leaseTransitions") or 0))
        if holder not in self._leases:
            self._leases.append(holder)
        age = datetime.now(UTC) - datetime.fromisoformat(spec["renewTime"])
        self._renewal_max_seconds = max(self._renewal_max_seconds, age.total_seconds())


class ApiserverMonitor(Background):
    """Measures the longest response time of the API server, which also delays programs that wait for it."""

    def __init__(self, api: Api) -> None:
        super().__init__(self._watch, join_seconds=2 * PROBE_SECONDS)
        self.max_seconds = 0.0
        self._api = api

    def _watch(self) -> None:
        begin = 0.0  # 0 if no request is in progress
        for _ in self.ticks(_POLL_SECONDS):
            begin = begin or time.monotonic()
            with contextlib.suppress(RefusedError, urllib3.exceptions.HTTPError):
                self._api.get("/version")
                self.max_seconds = max(self.max_seconds, time.monotonic() - begin)
                begin = 0.0


def _is_answered(url: str) -> bool:
    """Reports whether a new connection is served: a kubelet opens one for each probe."""
    with contextlib.suppress(urllib3.exceptions.HTTPError), urllib3.PoolManager(retries=False) as client:
        return client.request("GET", url, timeout=PROBE_SECONDS).status == 200
    return False
