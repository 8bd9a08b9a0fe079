"""Tells the auditor while no gang scheduler works, so that it blames nobody for what cannot be.

Theory of operation. Somebody works if the Lease was renewed a moment ago, for a replica whose programs both run and are
ready, and the server answers what gang schedulers ask. (It may hang for some kinds of objects only: after etcd has come
back each of its connections is tried again by itself, up to 20 s later.) One thread looks; another one tells while the
last good look is too long ago, since a look may hang too.
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
# Longer than a look takes on a busy machine.
_PATIENCE_SECONDS = 2.0
# kube-scheduler renews every 2 s.
_STALE_SECONDS = 5.0
_JOIN_SECONDS = 1.0


class Watchman:
    """`tell` is called twice in a second while nobody works."""

    def __init__(
        self,
        api: Api,
        paths: Sequence[str],
        replicas: Sequence[Replica],
        tell: Callable[[], None],
    ) -> None:
        """`paths` are lists that the server must answer."""
        self.idle_seconds = 0.0
        self._api = api
        self._paths = paths
        self._replicas = {replica.name: replica for replica in replicas}
        self._tell = tell
        self._others: list[Callable[[], bool]] = []
        self._good_at = time.monotonic()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"watchman-{target.__name__}", daemon=True)
            for target in (self._look, self._report)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def watch(self, works: Callable[[], bool]) -> None:
        """Somebody else who is needed. It may raise RefusedError and urllib3's HTTPError: then nobody works."""
        self._others.append(works)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def _look(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            asked_at = time.monotonic()
            if self._works():
                self._good_at = asked_at

    def _report(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            if time.monotonic() - self._good_at > _PATIENCE_SECONDS:
                self._tell()
                self.idle_seconds += _POLL_SECONDS

    def _works(self) -> bool:
        try:
            spec = (self._api.find(LEASE_PATH) or {}).get("spec") or {}
            for path in self._paths:
                self._api.request("GET", path, query={"limit": "1"})
            if not all(works() for works in self._others):
                return False
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
