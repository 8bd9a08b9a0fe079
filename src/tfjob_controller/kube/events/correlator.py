"""Decides which Events are written, when and how often. No I/O, no threads.

Theory of operation. Repeated events become one Event with a count. `observe` takes what was reported; `next_write`
returns what to send now, `rest_seconds` when to ask again; `record_success` and `record_failure` take the server's
response. Four rules, from client-go, and a fifth:

- *Series.* The same event (object, type, reason, action, note, related object) within 6 minutes of the last time adds
  to the count of the first Event. The first repetition is written at once, so that it is visible; further ones at most
  every 10 s, with the count reached by then. What has not been written when a series ends is written then.
- *Similar events.* Of events that differ in their note only, nine within 10 minutes of each other are written as they
  are; the others become one, whose note marks it as combined.
- *Spam.* Each object and type has 25 writes, and one more every 5 minutes. A new Event that finds none left is dropped;
  a count waits. Counts leave some of them to new Events, so that a job that fails all the time can still report its
  end.
- *Failures.* Transient ones are retried up to 12 times, not counting requests that never reached the server. While
  there is no response at all, everything waits, so that a server that is down does not get a request per Event.
  Permanent failures are logged. An Event that has expired (they live for an hour) is created again, with its count.
- *Namespaces.* They take turns in writing. Whenever one of the bounds is reached, the namespace that uses most of it
  loses something. A 429 delays its own namespace only, since the admission plugin EventRateLimit sends it to the
  namespaces that create too many Events. So a namespace with thousands of events costs others one request each.

The note belongs to the identity, as in client-go's tools/record, which all controllers of Kubernetes use. Its newer
tools/events leaves it out: then only the first note is kept, and `Created Job a` would hide `Created Job b`, since
the note of an existing Event cannot be changed. The object's resourceVersion does not belong to it: in tools/events it
does, and a series ends with each change of the object.

Source: client-go tools/record/events_cache.go, tools/events/event_broadcaster.go.
"""

from __future__ import annotations

import itertools
import random
import secrets
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import structlog

from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.events.pendingwrites import PendingWrites
from tfjob_controller.kube.events.series import Observation, Series, Write, same_object
from tfjob_controller.kube.flowcontrol import TokenBucket
from tfjob_controller.kube.names import name_violation
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.fairness import FairCache

log = structlog.get_logger(__name__)

SERIES_SECONDS = 360.0
REFRESH_SECONDS = 10.0
SIMILAR_SECONDS = 600.0
MAX_SIMILAR = 10  # the tenth is the first that is combined
SPAM_BURST = 25
SPAM_RATE = 1 / 300
RESERVED_FOR_NEW = 5
MAX_TRIES = 12
RETRY_BASE_SECONDS = 1.0
RETRY_CAP_SECONDS = 10.0
# Objects and series that are remembered, and writes that may wait, of all namespaces: some megabytes.
MAX_REMEMBERED = 4096

COMBINED = "(combined from similar events): "
# The API's limits, in bytes.
MAX_NOTE_BYTES = 1024
MAX_WORD_BYTES = 128
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class EventCounts:
    """Counted since the start. `full`: dropped since too many are pending; `spam`: dropped by the object's limit."""

    observed: int = 0
    created: int = 0
    patched: int = 0
    full: int = 0
    spam: int = 0
    refused: int = 0
    given_up: int = 0


@dataclass(slots=True)
class _Similar:
    notes: set[int] = field(default_factory=set)  # their hashes: thousands of notes would be megabytes
    last_at: float = 0.0


class Correlator:
    """Turns observations into writes. One thread."""

    def __init__(self, clock: Clock, rng: random.Random | None = None) -> None:
        self.counts = EventCounts()
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 -- spreads load, guards nothing
        self._series: FairCache[Hashable, Series] = FairCache(MAX_REMEMBERED)  # the longest silent first
        self._pending = PendingWrites()
        self._names = itertools.count()  # tells events of the same microsecond apart
        self._similar: FairCache[Hashable, _Similar] = FairCache(MAX_REMEMBERED)
        self._buckets: FairCache[Hashable, TokenBucket] = FairCache(MAX_REMEMBERED)
        self._outages = 0
        self._is_flushing = False

    @property
    def pending(self) -> int:
        """The number of series with something that is not written yet."""
        return len(self._pending)

    def observe(self, observation: Observation) -> None:
        now = self._clock.monotonic()
        self.counts.observed += 1
        self._end_silent(now)
        series = self._series_of(observation, now)
        series.count += 1
        series.last_observed = observation.observed
        series.last_trace = observation.trace
        series.ends_at = now + SERIES_SECONDS
        self._pending.push(series, max(now, series.earliest_write_at))
        if len(self._pending) > MAX_REMEMBERED:
            self._forget(self._pending.pop_of_largest())
            self.counts.full += 1

    def next_write(self) -> Write | None:
        """What to send now, if anything. `record_success` or `record_failure` must follow."""
        now = self._clock.monotonic()
        self._end_silent(now)
        while (series := self._pending.pop(now)) is not None:
            if self._may_write(series, now):
                last = series.last_observed or series.first.observed
                return Write(series, not series.is_posted, series.count, last, series.last_trace)
        return None

    def rest_seconds(self) -> float | None:
        """The seconds until the next write may be due if nothing is observed before; None for never."""
        longest_silent = self._series.oldest()
        times = (self._pending.next_due(), longest_silent.ends_at if longest_silent is not None else None)
        next_time = min((time for time in times if time is not None), default=None)
        return max(0.0, next_time - self._clock.monotonic()) if next_time is not None else None

    def record_success(self, write: Write) -> None:
        if write.is_create:
            self.counts.created += 1
        else:
            self.counts.patched += 1
            write.series.earliest_write_at = self._clock.monotonic() + REFRESH_SECONDS
        self._written(write.series, write.count)

    def record_failure(self, write: Write, error: ApiError) -> None:
        series = write.series
        self._outages = self._outages + 1 if error.is_no_response else 0
        if write.is_create and error.is_already_exists:
            # The name is random: an earlier attempt was carried out, but its response was lost.
            self.counts.created += 1
            self._written(series, 1)
        elif not write.is_create and error.is_not_found:
            series.is_posted = False
            self._pending.push(series, self._clock.monotonic())
        elif error.is_retryable or error.is_conflict:
            self._try_again(series, error)
        else:
            self.counts.refused += 1
            self._forget(series)
            log.warning("event rejected", error=str(error), **_log_keys(series))

    def flush(self) -> None:
        """Prepare for shutdown: from now on counts wait neither for their time nor for a token."""
        self._is_flushing = True
        self._pending.expedite_all(self._clock.monotonic())

    def _series_of(self, observation: Observation, now: float) -> Series:
        key, note = self._classify(observation, now)
        series = self._series.get(observation.namespace, key)
        if series is None:
            series = Series(key, observation, note, self._new_name(observation), self._bucket(observation))
        displaced = self._series.put(observation.namespace, key, series)
        if displaced is not None:
            self._end(displaced, now)
        return series

    def _new_name(self, observation: Observation) -> str:
        """A unique name in the order of time, since `kubectl describe` sorts events of this API by name.

        It begins with the object's name if the API allows that as part of a name.
        """
        order = f"{_microseconds(observation.observed):014x}{next(self._names) & 0xFFFF:04x}"
        suffix = f"{order}{secrets.token_hex(3)}"
        name = f"{observation.regarding.name}.{suffix}"
        return f"event.{suffix}" if name_violation(name) else name

    def _classify(self, observation: Observation, now: float) -> tuple[Hashable, str]:
        """The key of the observation's series, and the note of that series if it is new."""
        note = truncate_utf8(observation.note, MAX_NOTE_BYTES)
        similar = self._similar.get(observation.namespace, observation.similarity)
        if similar is None or now - similar.last_at > SIMILAR_SECONDS:
            similar = _Similar()
        self._similar.put(observation.namespace, observation.similarity, similar)
        similar.last_at = now
        if hash(note) not in similar.notes and len(similar.notes) + 1 >= MAX_SIMILAR:
            return (observation.similarity, None), truncate_utf8(COMBINED + observation.note, MAX_NOTE_BYTES)
        similar.notes.add(hash(note))
        return (observation.similarity, note), note

    def _bucket(self, observation: Observation) -> TokenBucket:
        key = (same_object(observation.regarding), observation.type)
        bucket = self._buckets.get(observation.namespace, key) or TokenBucket(SPAM_RATE, SPAM_BURST, self._clock)
        self._buckets.put(observation.namespace, key, bucket)
        return bucket

    def _may_write(self, series: Series, now: float) -> bool:
        """Whether there is a token for the write. Otherwise a new Event is dropped, and a count waits."""
        is_free = not series.needs_token or (self._is_flushing and series.is_posted)
        if is_free or series.bucket.try_take(RESERVED_FOR_NEW if series.is_posted else 0):
            series.needs_token = False  # a retry needs no other
            return True
        if series.is_posted:
            self._pending.push(series, now + REFRESH_SECONDS)
        else:
            self.counts.spam += 1
            self._forget(series)
        return False

    def _written(self, series: Series, count: int) -> None:
        self._outages = 0
        series.is_posted = True
        series.written_count = count
        series.tries = 0
        series.needs_token = self._is_open(series)  # the last write of an ended one is free
        if series.count > count:
            self._pending.push(series, 0.0 if self._is_flushing else series.earliest_write_at)

    def _try_again(self, series: Series, error: ApiError) -> None:
        now = self._clock.monotonic()
        series.tries += not error.is_no_response or error.outcome_unknown
        if series.tries >= MAX_TRIES:
            self.counts.given_up += 1
            self._forget(series)
            log.warning("event dropped after retries", tries=series.tries, error=str(error), **_log_keys(series))
            return
        rest = max(self._rest_after(max(1, series.tries)), error.retry_after_seconds or 0.0)
        self._pending.push(series, now + rest)
        if error.is_no_response:
            self._pending.hold_all(now + self._rest_after(max(1, self._outages)))
        elif error.is_too_many_requests:
            self._pending.hold(series.namespace, now + rest)

    def _rest_after(self, tries: int) -> float:
        return min(RETRY_CAP_SECONDS, RETRY_BASE_SECONDS * 2.0 ** (tries - 1)) * self._rng.uniform(0.75, 1.0)

    def _end_silent(self, now: float) -> None:
        while (series := self._series.oldest()) is not None and series.ends_at <= now:
            self._end(series, now)

    def _end(self, series: Series, now: float) -> None:
        """End a series: its count is written without a token, and a repetition is a new Event."""
        self._forget(series)
        if series.is_pending and series.is_posted:
            series.needs_token = False
            self._pending.expedite(series, now)

    def _is_open(self, series: Series) -> bool:
        """Whether a repetition adds to the series."""
        return self._series.get(series.namespace, series.key) is series

    def _forget(self, series: Series) -> None:
        if self._is_open(series):
            self._series.remove(series.namespace, series.key)


def truncate_utf8(text: str, limit_bytes: int) -> str:
    """Returns the text cut to `limit_bytes` of UTF-8, at a whole character; a cut text ends with dots."""
    raw = text.encode(errors="replace")
    if len(raw) <= limit_bytes:
        return raw.decode()
    return raw[: limit_bytes - 3].decode(errors="ignore") + "..."


def _microseconds(moment: datetime) -> int:
    """Since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _log_keys(series: Series) -> dict[str, str]:
    regarding = series.first.regarding
    key = f"{regarding.namespace}/{regarding.name}" if regarding.namespace else regarding.name
    return {"key": key, "uid": regarding.uid, "reason": series.first.reason, "note": series.note}
