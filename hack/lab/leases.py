"""Leases of replicas, and the times in which no replica holds one and works.

Theory of operation. A replica works if it renews its Lease and its programs run, and the server answers its requests.
(The server may hang for some kinds only: after a restart of etcd, each of its connections is retried separately, up to
20 s later.) One thread checks this, and another one reports an outage while the last successful check is too long ago,
since a check may hang as well. Auditors run no deadline during an outage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import urllib3

from lab.background import Background
from localcluster.api import Api, Object, RefusedError

LEASE_NAMESPACE = "kube-system"
_POLL_SECONDS = 0.5
# Longer than a check takes on a busy machine.
_OUTAGE_SECONDS = 2.0
_JOIN_SECONDS = 1.0


class Replica(Protocol):
    """Implemented by `lab.programs.GangReplica` and `lab.programs.Controller`."""

    @property
    def name(self) -> str: ...
    @property
    def is_ready(self) -> bool: ...


R = TypeVar("R", bound=Replica)


def lease_path(name: str, namespace: str = LEASE_NAMESPACE) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"


def holder_of(spec: Object) -> str:
    """Returns the host name of the holder of a Lease; empty for none.

    Source: kube-scheduler app/options/options.go (the identity).
    """
    return str(spec.get("holderIdentity") or "").partition("_")[0]


def leader_of(api: Api, lease: str, replicas: Sequence[R]) -> R | None:
    """Returns the replica that holds the Lease; None if there is none or the server does not respond."""
    try:
        name = holder_of(_spec(api, lease))
    except (RefusedError, urllib3.exceptions.HTTPError):
        return None
    return next((replica for replica in replicas if replica.name == name), None)


def _spec(api: Api, lease: str) -> Object:
    spec: Object = (api.find(lease_path(lease)) or {}).get("spec") or {}
    return spec


class LeaseMonitor:
    """Checks that a leader renews the Lease, with its own clock, since the clocks of replicas may jump."""

    def __init__(self, api: Api, lease: str, replicas: Sequence[Replica], stale_seconds: float) -> None:
        self._api, self._lease, self._replicas = api, lease, replicas
        self._stale_seconds = stale_seconds
        self._renewed = ""
        self._at = time.monotonic()

    def is_renewed(self) -> bool:
        """Reports whether a leader renews the Lease. Raises RefusedError and urllib3's HTTPError. Not thread-safe."""
        spec = _spec(self._api, self._lease)
        if spec.get("renewTime") != self._renewed:
            self._renewed, self._at = str(spec.get("renewTime")), time.monotonic()
        leader = next((replica for replica in self._replicas if replica.name == holder_of(spec)), None)
        return leader is not None and time.monotonic() - self._at < self._stale_seconds and leader.is_ready


class OutageReporter(Background):
    """Calls `report` twice a second during an outage, which is while a check fails or raises."""

    def __init__(self, api: Api, paths: Sequence[str], report: Callable[[], None]) -> None:
        """`paths` are lists that the server must return."""
        super().__init__(self._check, self._report_outages, join_seconds=_JOIN_SECONDS)
        self.idle_seconds = 0.0
        self.checks: list[Callable[[], bool]] = []
        self._api, self._paths, self._report = api, paths, report
        self._good_at = time.monotonic()

    def _check(self) -> None:
        for _ in self.ticks(_POLL_SECONDS):
            begin = time.monotonic()
            if self._works():
                self._good_at = begin

    def _report_outages(self) -> None:
        for _ in self.ticks(_POLL_SECONDS):
            if time.monotonic() - self._good_at > _OUTAGE_SECONDS:
                self._report()
                self.idle_seconds += _POLL_SECONDS

    def _works(self) -> bool:
        try:
            for path in self._paths:
                self._api.request("GET", path, query={"limit": "1"})
            return all(check() for check in self.checks)
        except (RefusedError, urllib3.exceptions.HTTPError):
            return False
