"""The decisions of leader election, without threads.

Theory of operation. A `Lease` object names its holder, which renews it periodically. A candidate reads it, and

- acquires it if it has no holder, or if it has not changed for the duration in which the holder promised to renew it;
- leads from the moment the server has confirmed its write, until `renew_deadline_seconds` after it *sent* the last
  confirmed write; then it no longer leads, whatever responses still arrive.

Only durations on the local monotonic clock count. The times in the object are for people: no decision reads them, so
that clocks may be wrong and jump. Why no two processes lead: a write sent at t is carried out at t or later, others see
it later still and wait `lease_seconds` from then, while its sender stops leading at t + `renew_deadline_seconds`, which
is less. The difference of both is the margin for clocks that differ in *rate* (by default a half). The server's
optimistic locking lets one of several concurrent writes succeed.

An attempt is either confirmed or failed; an error proves nothing. In particular a write whose response was lost may
have been carried out: then the next attempt finds this process as the holder and renews the lease.

    FOLLOWING ──confirmed in time──► LEADING ──late, taken by another, released──► ENDED (for good)

Two cases are not covered. If a user edits a lease, or deletes it before a candidate has seen its holder, its next
holder leads at once, and the former leader notices at its next renewal. A suspended machine stops its monotonic clock
and leads after that for as long as its lease had left.

Threads: `try_acquire_or_renew` and `release` belong to one thread; everything else is for any.
Source: client-go tools/leaderelection (which counts the deadline from the answers, and releases also after a loss).
"""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import structlog

from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.flowcontrol import Priority
from tfjob_controller.kube.meta import Resource
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import format_micro_time

log = structlog.get_logger(__name__)

LEASES: Resource[Any] = Resource("coordination.k8s.io", "v1", "leases", "Lease")

# What is left of a released lease, so that those who do not look at the holder's name find it expired too: client-go's.
_RELEASED_SECONDS = 1
# The first with what was last read, the second after reading again. Then others wait for the lease to expire.
_RELEASE_TRIES = 2


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How a lease is kept. Seconds.

    `lease`: how long others wait for a holder who is silent. `renew_deadline`: how long a holder leads without a
    confirmed renewal. `retry`: the longest rest between two attempts.
    """

    lease: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease > self.renew_deadline > self.retry > 0:
            raise ValueError(
                "a lease needs lease seconds > renew deadline > retry > 0, "
                f"not {self.lease:g}, {self.renew_deadline:g}, {self.retry:g}"
            )
        if self.lease != int(self.lease):
            raise ValueError(f"the API knows only whole lease seconds, not {self.lease:g}")

    @property
    def request(self) -> float:
        """The time-out of one request: a second one has to fit before the deadline."""
        return self.renew_deadline / 2


class LeaderMetrics(Protocol):
    """`leader_election_master_status` and `leader_election_slowpath_total`, as client-go names them."""

    def on(self, name: str) -> None:
        """The process leads by the lease of this name: the gauge is 1."""

    def off(self, name: str) -> None:
        """It does not: 0."""

    def slowpath_exercised(self, name: str) -> None:
        """A leader had to read the lease before it could renew it."""


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of a Lease. The times are the holder's clock, for people."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class CandidateState(enum.Enum):
    FOLLOWING = "following"
    LEADING = "leading"
    ENDED = "ended"


class LeaseLock:
    """Reads and writes one Lease. Labels, annotations and unknown fields that others set stay as they are."""

    def __init__(self, requester: Requester, namespace: str, name: str) -> None:
        self._requester = requester
        self._namespace = namespace
        self._name = name
        self._object: dict[str, Any] = {}
        self._is_fresh = False

    @property
    def is_fresh(self) -> bool:
        """Whether the last request succeeded, so that `update` knows what it replaces."""
        return self._is_fresh

    def get(self, timeout_seconds: float) -> LeaseRecord | None:
        """The present record of the lease, None if there is no lease. Raises ApiError."""
        try:
            return self._keep(self._request("GET", LEASES.path(self._namespace, self._name), None, timeout_seconds))
        except ApiError as error:
            if not error.is_not_found:
                raise
            return None

    def create(self, record: LeaseRecord, timeout_seconds: float) -> LeaseRecord:
        """Create the lease. Raises ApiError, also if another candidate was faster."""
        metadata = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": record}
        return self._keep(self._request("POST", LEASES.path(self._namespace), body, timeout_seconds))

    def update(self, record: LeaseRecord, timeout_seconds: float) -> LeaseRecord:
        """Replace what was last read or written. Raises ApiError: a conflict if it is not that any more."""
        spec = {**(self._object.get("spec") or {}), **msgspec.to_builtins(record)}
        body = {**self._object, "spec": spec}
        return self._keep(self._request("PUT", LEASES.path(self._namespace, self._name), body, timeout_seconds))

    def _request(self, method: str, path: str, body: object, timeout_seconds: float) -> bytes:
        self._is_fresh = False
        return self._requester.request(
            method,
            path,
            body=None if body is None else msgspec.json.encode(body),
            timeout_seconds=timeout_seconds,
            priority=Priority.LEASE,
            retry=False,  # the elector tries again by itself, with fresh knowledge
        )

    def _keep(self, answer: bytes) -> LeaseRecord:
        try:
            obj = msgspec.json.decode(answer, type=dict[str, Any])
            record = msgspec.convert(obj.get("spec") or {}, LeaseRecord)
        except msgspec.MsgspecError as error:
            raise ApiError(NO_RESPONSE, "BadAnswer", f"this is not a Lease: {error}", outcome_unknown=True) from error
        self._object = obj
        self._is_fresh = True
        return record


class Candidate:
    """One process that competes for the lease."""

    def __init__(
        self,
        lock: LeaseLock,
        clock: Clock,
        identity: str,
        *,
        times: LeaseTimes,
        name: str = "",
        metrics: LeaderMetrics | None = None,
    ) -> None:
        if not identity:
            raise ValueError("a candidate needs an identity that no other has")
        self.identity = identity
        self._lock = lock
        self._clock = clock
        self._times = times
        self._name = name
        self._metrics = metrics
        self._observed: LeaseRecord | None = None
        self._observed_at = 0.0
        self._guard = threading.Lock()  # over the two below
        self._state = CandidateState.FOLLOWING
        self._leads_until = 0.0

    @property
    def state(self) -> CandidateState:
        with self._guard:
            return self._state

    @property
    def is_leader(self) -> bool:
        """True only while this process certainly holds the lease, even if the renewing thread hangs."""
        with self._guard:
            return self._state is CandidateState.LEADING and self._clock.monotonic() < self._leads_until

    @property
    def seconds_left(self) -> float | None:
        """How long it leads if no renewal is confirmed any more; None while it does not lead."""
        with self._guard:
            return self._leads_until - self._clock.monotonic() if self._state is CandidateState.LEADING else None

    @property
    def leader(self) -> str:
        """The last observed holder of the lease, "" for none. For display: no decision reads it."""
        return (self._observed and self._observed.holder_identity) or ""

    def try_acquire_or_renew(self) -> bool:
        """One attempt; True if it was confirmed in time. Every error is a failed attempt and no more than that.

        A leader whose time is over has ended, and sends nothing.
        """
        self.end_if_expired()
        try:
            return self._state is not CandidateState.ENDED and self._attempt()
        except ApiError as error:
            is_leader = self.is_leader
            log.warning("failed to acquire or renew lease", lease=self._name, error=str(error), is_leader=is_leader)
            return False

    def end_if_expired(self) -> bool:
        """Stop leading for good if the deadline has passed; True if that is what this call did."""
        with self._guard:
            if self._state is not CandidateState.LEADING or self._clock.monotonic() < self._leads_until:
                return False
            self._state = CandidateState.ENDED
        log.error("lease not renewed in time", lease=self._name, deadline_seconds=self._times.renew_deadline)
        return True

    def release(self) -> bool:
        """Stop leading for good, then release the lease; returns True if this process held it and it is free now.

        Only for a leader whose work has ended. One that lost the lease does not touch it: its work may continue.
        """
        was_leader = self.is_leader
        with self._guard:
            self._state = CandidateState.ENDED
        if not was_leader:
            return False
        for _ in range(_RELEASE_TRIES):
            try:
                return self._release()
            except ApiError as error:
                log.warning("lease not released", lease=self._name, error=str(error))
        return False

    def _attempt(self) -> bool:
        if self._observed is not None and self.is_leader and self._lock.is_fresh:
            sent_at = self._clock.monotonic()
            try:
                return self._confirmed(self._lock.update(self._renewal(self._observed), self._timeout()), sent_at)
            except ApiError as error:
                log.info("lease not renewed at the first try, reading it", lease=self._name, error=str(error))
        if self._metrics and self.state is CandidateState.LEADING:
            self._metrics.slowpath_exercised(self._name)
        return self._read_and_write()

    def _read_and_write(self) -> bool:
        record = self._lock.get(self._timeout())
        if self.end_if_expired():
            return False
        if record is None:
            return not self._is_held() and self._write(None)
        self._observe(record)
        if record.holder_identity == self.identity:
            return self._write(record)
        self._end_if_taken(record)
        return not self._is_held() and self._write(record)

    def _write(self, record: LeaseRecord | None) -> bool:
        if self.state is CandidateState.ENDED:
            return False
        sent_at = self._clock.monotonic()
        if record is None:
            written = self._lock.create(self._takeover(None), self._timeout())
        elif record.holder_identity == self.identity:
            written = self._lock.update(self._renewal(record), self._timeout())
        else:
            written = self._lock.update(self._takeover(record), self._timeout())
        return self._confirmed(written, sent_at)

    def _observe(self, record: LeaseRecord) -> None:
        """Remember when this state of the lease was first seen: after the response, so never too early."""
        if record == self._observed:
            return
        before = self.leader
        self._observed = record
        self._observed_at = self._clock.monotonic()
        if self.leader != before:
            log.info("lease has a new holder", lease=self._name, holder=self.leader, was=before)

    def _is_held(self) -> bool:
        """Whether another holder may still lead, by our clock and the duration that the holder promised.

        That holds for a deleted lease as well, since its holder does not notice the deletion at once.
        """
        record = self._observed
        if record is None or record.holder_identity in (None, "", self.identity):
            return False
        return self._clock.monotonic() < self._observed_at + (record.lease_duration_seconds or self._times.lease)

    def _end_if_taken(self, record: LeaseRecord) -> None:
        with self._guard:
            if self._state is not CandidateState.LEADING:
                return
            self._state = CandidateState.ENDED
        log.error("lease acquired by another holder", lease=self._name, holder=record.holder_identity)

    def _confirmed(self, record: LeaseRecord, sent_at: float) -> bool:
        """The server has carried out a write that was sent at `sent_at`. It counts only if it is not too late."""
        self._observe(record)
        leads_until = sent_at + self._times.renew_deadline
        with self._guard:
            now = self._clock.monotonic()
            if self._state is CandidateState.LEADING and now >= self._leads_until:
                self._state = CandidateState.ENDED
            if self._state is CandidateState.ENDED or now >= leads_until:
                return False
            self._state = CandidateState.LEADING
            self._leads_until = leads_until
            return True

    def _renewal(self, record: LeaseRecord) -> LeaseRecord:
        now = format_micro_time(self._clock.now())
        return msgspec.structs.replace(
            record, holder_identity=self.identity, lease_duration_seconds=int(self._times.lease), renew_time=now
        )

    def _takeover(self, record: LeaseRecord | None) -> LeaseRecord:
        now = format_micro_time(self._clock.now())
        transitions = 0 if record is None else (record.lease_transitions or 0) + 1
        return LeaseRecord(self.identity, int(self._times.lease), now, now, transitions)

    def _timeout(self) -> float:
        """A leader's request may not take longer than it leads; the server's answer would be too late."""
        left = self.seconds_left
        return self._times.request if left is None else max(0.001, min(self._times.request, left))

    def _release(self) -> bool:
        record = self._observed
        if record is None or not self._lock.is_fresh:
            record = self._lock.get(self._times.request)
        if record is None or record.holder_identity != self.identity:
            return False
        now = format_micro_time(self._clock.now())
        self._lock.update(LeaseRecord("", _RELEASED_SECONDS, now, now, record.lease_transitions), self._times.request)
        log.info("lease released", lease=self._name)
        return True
