"""Tells the auditor while no gang scheduler works, so that it blames nobody for what cannot be.

Somebody works if the Lease was renewed a moment ago, for a replica whose programs both run and are ready. One thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime

import urllib3

from chaos.kept import LEASE_PATH, Replica
from localcluster.api import Api, Object, RefusedError

_POLL_SECONDS = 0.5
# kube-scheduler renews every 2 s.
_STALE_SECONDS = 5.0
_JOIN_SECONDS = 10.0


class Watchman:
    """`tell` is called twice in a second while nobody works."""

    def __init__(self, api: Api, replicas: Sequence[Replica], tell: Callable[[], None]) -> None:
        self.idle_seconds = 0.0
        self._api = api
        self._replicas = {replica.name: replica for replica in replicas}
        self._tell = tell
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchman", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        looked_at = time.monotonic()
        while not self._stopping.wait(_POLL_SECONDS):
            is_idle, now = not self._works(), time.monotonic()
            if is_idle:
                self._tell()
                self.idle_seconds += now - looked_at
            looked_at = now

    def _works(self) -> bool:
        try:
            spec = (self._api.find(LEASE_PATH) or {}).get("spec") or {}
        except (RefusedError, urllib3.exceptions.HTTPError):
            return False
        leader = self._replicas.get(holder_of(spec))
        return leader is not None and age_of(spec, time.time()) < _STALE_SECONDS and leader.is_ready


def leader_name(api: Api) -> str:
    """The replica that leads; empty if none does, or nobody can say."""
    try:
        return holder_of((api.find(LEASE_PATH) or {}).get("spec") or {})
    except (RefusedError, urllib3.exceptions.HTTPError):
        return ""


def holder_of(spec: Object) -> str:
    """The machine that holds a Lease; empty for none. Source: kube-scheduler app/options/options.go (the identity)."""
    return str(spec.get("holderIdentity") or "").partition("_")[0]


def age_of(spec: Object, now: float) -> float:
    """Seconds since a Lease was renewed; infinite for one that never was."""
    renewed = spec.get("renewTime")
    return now - datetime.fromisoformat(renewed).timestamp() if renewed else float("inf")
