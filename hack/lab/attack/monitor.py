"""Checks every second whether the programs run, hold their Leases and answer their probes, as kubelets do."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import urllib3

from lab.attack.stage import LEASES, Stage
from localcluster.api import RefusedError
from localcluster.ourprogram import METRICS, PROBES

# As in the Deployments: a later response counts as failed, and three failures in a row restart the container.
PROBE_SECONDS = 5.0
_POLL_SECONDS = 1.0


@dataclass(slots=True)
class Seen:
    """The observations of one program."""

    lives: bool = True
    probes: int = 0
    probes_failed: int = 0
    probe_max_seconds: float = 0.0
    metrics_failed: int = 0
    leases: list[tuple[str, int]] = field(default_factory=list)
    renewal_max_seconds: float = 0.0


class ProgramMonitor:
    """Checks both programs, each in its own thread, so that one that hangs does not hide the other."""

    def __init__(self, stage: Stage) -> None:
        self.seen: Mapping[str, Seen] = {name: Seen() for name in LEASES}
        # The longest response time of the API server, which also delays programs that wait for it.
        self.apiserver_max_seconds = 0.0
        self._stage = stage
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(name,), daemon=True) for name in LEASES]
        self._threads.append(threading.Thread(target=self._watch_apiserver, daemon=True))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * PROBE_SECONDS)

    def figures(self, name: str, seconds: float) -> dict[str, Any]:
        seen, limit = self.seen[name], self._stage.limits[name]
        return {
            **limit.figures(),
            "cpu_cores": round(limit.cpu_seconds / seconds, 2),
            "is_alive": seen.lives,
            "leases": len(seen.leases),
            "renewal_max_seconds": round(seen.renewal_max_seconds, 1),
            "probes": seen.probes,
            "probes_failed": seen.probes_failed,
            "probe_max_ms": round(1000 * seen.probe_max_seconds, 1),
            "metrics_failed": seen.metrics_failed,
        }

    def broken(self, name: str, probe_seconds: float) -> list[str]:
        """Returns the limits that are violated."""
        seen, limit = self.seen[name], self._stage.limits[name]
        bounds = {
            **limit.broken(),
            "lost its lease": len(seen.leases) != 1,
            "did not answer probes in time": seen.probes_failed > 0,
            f"took longer than {probe_seconds:g} s for a probe": seen.probe_max_seconds > probe_seconds,
        }
        return [f"{name} {text}" for text, is_broken in bounds.items() if is_broken]

    def _watch(self, name: str) -> None:
        program = self._stage.controller if name == "controller" else self._stage.extender
        seen, limit = self.seen[name], self._stage.limits[name]
        while not self._stopping.wait(_POLL_SECONDS):
            seen.lives = seen.lives and limit.is_alive and limit.peak_bytes > 0
            begin = time.monotonic()
            is_good = self._is_answered(f"{program.urls[PROBES]}/healthz")
            seen.probes += 1
            seen.probes_failed += not is_good
            seen.probe_max_seconds = max(seen.probe_max_seconds, time.monotonic() - begin)
            seen.metrics_failed += not self._is_answered(f"{program.urls[METRICS]}/metrics")
            with contextlib.suppress(RefusedError, urllib3.exceptions.HTTPError):
                self._look_at_lease(name)

    def _watch_apiserver(self) -> None:
        begin = 0.0  # 0 if no request is in progress
        while not self._stopping.wait(_POLL_SECONDS):
            begin = begin or time.monotonic()
            with contextlib.suppress(RefusedError, urllib3.exceptions.HTTPError):
                self._stage.api.get("/version")
                self.apiserver_max_seconds = max(self.apiserver_max_seconds, time.monotonic() - begin)
                begin = 0.0

    def _is_answered(self, url: str) -> bool:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            return urllib3.request("GET", url, retries=False, timeout=PROBE_SECONDS).status == 200
        return False

    def _look_at_lease(self, name: str) -> None:
        spec = self._stage.api.get(LEASES[name])["spec"]
        seen = self.seen[name]
        holder = (str(spec.get("holderIdentity")), int(spec.get("leaseTransitions") or 0))
        if holder not in seen.leases:
            seen.leases.append(holder)
        age = datetime.now(UTC) - datetime.fromisoformat(spec["renewTime"])
        seen.renewal_max_seconds = max(seen.renewal_max_seconds, age.total_seconds())
