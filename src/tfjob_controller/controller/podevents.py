"""Reads the newest warning about pods and child Jobs that do not start, from their Events.

Theory of operation. A sync asks about the objects whose status gives no reason (`jobs.evaluation.silence`), and
these are few. Events are not watched: a cluster has more of them than of anything else. Each request is a list of the
Events of one object, for which the API server reads those of the whole namespace, so requests are rare:

- about the first `MAX_ASKED` objects of a job, each at most once in `PERIOD_SECONDS`;
- within a budget of each namespace and one of the process, and at most `_MAX_CONCURRENT` at the same time. A sync never
  waits for them: without a request it takes the last answer, and its job is synced again soon;
- none in a namespace for a while after a failure, and for longer after a refusal (403). Jobs run without the right.

A user may write Events about a pod of any number and size, so a response is read up to `MAX_BYTES`, and answers are
short, limited in number, and forgotten after `RETENTION_SECONDS`.

Threads: any.

Source: Kubernetes pkg/kubelet/events/event.go; client-go tools/record/events_cache.go.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import structlog
from cachetools import LRUCache

from tfjob_controller.jobs.evaluation.silence import newest_warning
from tfjob_controller.kube.codec import decode_list, decoder_for
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.events.recorder import EVENTS
from tfjob_controller.kube.flowcontrol import TokenBucket, TokenBuckets
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.fairness import FairCache

log = structlog.get_logger(__name__)

PERIOD_SECONDS = 30.0
RETENTION_SECONDS = 120.0
# The objects of one job that are asked about. Its status shows one reason.
MAX_ASKED = 3
# A pod that does not start has a few Events, since its kubelet counts repeated ones.
MAX_EVENTS = 100
MAX_BYTES = 512 * 1024
MAX_ANSWERS = 1000
REFUSED_SECONDS = 300.0
_FAILED_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
_MAX_CONCURRENT = 2
# Requests per second, and at once.
_RATE, _BURST = 5.0, 50
_NAMESPACE_RATE, _NAMESPACE_BURST = 2.0, 20
_MAX_NAMESPACES = 1000

# What differs between two attempts of the same kind: ids of sandboxes, and the generated end of the name of a pod.
_VARIABLE = re.compile(r"[0-9a-f]{32,}|-[bcdfghjklmnpqrstvwxz2456789]{5}\b")


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    last_observed_time: str | None = None


class ReportedEvent(msgspec.Struct, frozen=True, rename="camel"):
    """An Event (events.k8s.io/v1), also one that was written by the core API."""

    metadata: ObjectMeta
    type: str = ""
    reason: str = ""
    note: str = ""
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    series: _Series | None = None

    @property
    def time(self) -> str:
        """Returns when it happened last, in whole seconds."""
        last = self.series.last_observed_time if self.series is not None else None
        return (last or self.deprecated_last_timestamp or self.event_time or self.metadata.creation_timestamp or "")[
            :19
        ]


_decode_event = decoder_for(ReportedEvent)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is known of one object. `asked_at` is monotonic."""

    namespace: str
    uid: str
    asked_at: float
    warning: str = ""


class PodEvents:
    """See the module. Thread-safe."""

    def __init__(self, requester: Requester, clock: Clock) -> None:
        self._requester = requester
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: FairCache[str, _Answer] = FairCache(MAX_ANSWERS)
        self._paused_until: LRUCache[str, float] = LRUCache(_MAX_NAMESPACES)
        self._budget = TokenBucket(_RATE, _BURST, clock)
        self._budgets = TokenBuckets(_NAMESPACE_RATE, _NAMESPACE_BURST, clock, _MAX_NAMESPACES)
        self._free = threading.Semaphore(_MAX_CONCURRENT)

    def warnings_of(self, namespace: str, uids: Sequence[str]) -> Mapping[str, str]:
        """Returns the newest warning about the first of the objects, by UID, as far as there is one. Raises nothing."""
        warnings = {uid: self._warning_of(namespace, uid) for uid in uids[:MAX_ASKED]}
        return {uid: warning for uid, warning in warnings.items() if warning}

    def _warning_of(self, namespace: str, uid: str) -> str:
        if not self._free.acquire(blocking=False):
            return self._known_warning(namespace, uid)
        try:
            return (
                self._read(namespace, uid) if self._take_turn(namespace, uid) else self._known_warning(namespace, uid)
            )
        finally:
            self._free.release()

    def _known_warning(self, namespace: str, uid: str) -> str:
        with self._lock:
            known = self._answers.get(namespace, uid)
            return known.warning if known is not None else ""

    def _take_turn(self, namespace: str, uid: str) -> bool:
        """Reports whether to ask about an object now. If so, it counts as asked."""
        now = self._clock.monotonic()
        with self._lock:
            self._forget(now)
            known = self._answers.get(namespace, uid)
            is_known = known is not None and now - known.asked_at < PERIOD_SECONDS
            if is_known or now < self._paused_until.get(namespace, now) or not self._take_token(namespace):
                return False
            self._answers.put(namespace, uid, _Answer(namespace, uid, now, known.warning if known is not None else ""))
            return True

    def _take_token(self, namespace: str) -> bool:
        budget = self._budgets.of(namespace)
        return budget.has_token() and self._budget.try_take() and budget.try_take()

    def _forget(self, now: float) -> None:
        while (oldest := self._answers.oldest()) is not None and now - oldest.asked_at >= RETENTION_SECONDS:
            self._answers.remove(oldest.namespace, oldest.uid)

    def _read(self, namespace: str, uid: str) -> str:
        """Asks the API server. After a failure returns the last answer."""
        try:
            warning = newest_warning(self._events_of(namespace, uid))
        except (ApiError, msgspec.MsgspecError) as error:
            is_refused = isinstance(error, ApiError) and error.is_forbidden
            log.info("events not read", namespace=namespace, uid=uid, error=str(error))
            with self._lock:
                pause_seconds = REFUSED_SECONDS if is_refused else _FAILED_SECONDS
                self._paused_until[namespace] = self._clock.monotonic() + pause_seconds
            return self._known_warning(namespace, uid)
        return self._record(namespace, uid, warning)

    def _record(self, namespace: str, uid: str, warning: str) -> str:
        """Keeps the warning. One that differs from the last only by generated names changes nothing."""
        with self._lock:
            known = self._answers.get(namespace, uid)
            if known is None or _VARIABLE.sub("", known.warning) == _VARIABLE.sub("", warning):
                return known.warning if known is not None else warning
            self._answers.put(namespace, uid, _Answer(namespace, uid, known.asked_at, warning))
        return warning

    def _events_of(self, namespace: str, uid: str) -> list[ReportedEvent]:
        """Raises ApiError, and MsgspecError if the response is too long."""
        query = {"fieldSelector": f"regarding.uid={uid}", "limit": str(MAX_EVENTS)}
        # A list is one line, and a longer line is cut.
        with self._requester.stream(
            EVENTS.path(namespace), query=query, read_timeout_seconds=_ANSWER_SECONDS, max_line_bytes=MAX_BYTES
        ) as lines:
            body = b"".join(lines)
        return [_decode_event(item) for item in decode_list(body).items]
