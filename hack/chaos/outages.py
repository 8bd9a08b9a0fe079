"""Reports to the auditors while no gang scheduler works, so that no deadline runs in that time.

Theory of operation. A gang scheduler works if the Lease was renewed recently by a replica whose programs are running
and ready, and the server answers the requests of gang schedulers. (The server may hang for some kinds only: after a
restart of etcd, each of its connections is retried separately, up to 20 s later.) One thread checks this, and another
one reports an outage while the last successful check is too long ago, since a check may hang as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime

import urllib3

from chaos.supervised import LEASE_PATH, Replica
from localcluster.api import Api, Object, RefusedError

_POLL_SECONDS = 0.5
# Longer than a check takes on a busy machine.
_OUTAGE_SECONDS = 2.0
# kube-scheduler renews every 2 s.
_STALE_SECONDS = 5.0
_JOIN_SECONDS = 1.0


class OutageReporter:
    """Calls `report` twice a second during an outage."""

    def __init__(
        self,
        api: Api,
        paths: Sequence[str],
        replicas: Sequence[Replica],
        report: Callable[[], None],
    ) -> None:
        """`paths` are lists that the server must return."""
        self.idle_seconds = 0.0
        self._api = api
        self._paths = paths
        self._replicas = {replica.name: replica for replica in replicas}
        self._report = report
        self._checks: list[Callable[[], bool]] = []
        self._good_at = time.monotonic()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"outages{target.__name__}", daemon=True)
            for target in (self._check, self._report_outages)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add_check(self, check: Callable[[], bool]) -> None:
        """Adds a check of another program. If it raises RefusedError or urllib3's HTTPError, there is an outage."""
        self._checks.append(check)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def _check(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            asked_at = time.monotonic()
            if self._works():
                self._good_at = asked_at

    def _report_outages(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            if time.monotonic() - self._good_at > _OUTAGE_SECONDS:
                self._report()
                self.idle_seconds += _POLL_SECONDS

    def _works(self) -> bool:
        try:
            spec = (self._api.find(LEASE_PATH) or {}).get("spec") or {}
            for path in self._paths:
                self._api.request("GET", path, query={"limit": "1"})
            if not all(check() for check in self._checks):
                return False
        except (RefusedError, urllib3.exceptions.HTTPError):
            return False
        leader = self._replicas.get(holder_of(spec))
        return leader is not None and age_of(spec, time.time()) < _STALE_SECONDS and leader.is_ready


def leader_name(api: Api) -> str:
    """Returns the name of the leading replica; empty if there is none or the server does not respond."""
    try:
        return holder_of((api.find(LEASE_PATH) or {}).get("spec") or {})
    except (RefusedError, urllib3.exceptions.HTTPError):
        return ""


def holder_of(spec: Object) -> str:
    """Returns the host name of the holder of a Lease; empty for none.

    Source: kube-scheduler app/options/options.go (the identity).
    """
    return str(spec.get("holderIdentity") or "").partition("_")[0]


def age_of(spec: Object, now: float) -> float:
    """Returns the seconds since a Lease was renewed; infinite if it never was."""
    renewed = spec.get("renewTime")
    return now - datetime.fromisoformat(renewed).timestamp() if renewed else float("inf")
