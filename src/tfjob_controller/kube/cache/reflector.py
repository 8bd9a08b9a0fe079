"""Keeps a sink up to date with one collection of the API server: list, then watch, until stopped.

Theory of operation. `ListWatchState` decides which request comes next and what its outcome means. The reflector sends
that request, feeds the lines of a watch to `WatchDecoder`, and passes the resulting deltas to the sink in the server's
order: a `ReplaceDelta` for each complete list, then one delta per change.

After every failure it rests, with decorrelated backoff and at least for `Retry-After`. There are two exceptions: a
watch whose time was over, and a 410 unless the previous one is less than `EXPIRY_SECONDS` ago. A connection without a
line for `READ_TIMEOUT_SECONDS` is closed: bookmarks come each minute, so it is dead. The server is asked to end each
watch after 5 to 10 minutes, which distributes the watches over its instances again.

`last_error` describes what is wrong in words that a user can act on, such as missing permissions or CRDs. The reflector
keeps trying in these cases as well.

Threads: `run` belongs to one thread; `stop`, properties and `statistics` may be used from any.
Source: client-go tools/cache/reflector.go.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic

import structlog

from tfjob_controller.kube import codec
from tfjob_controller.kube.cache.listwatch import ListWatchState, RequestMode
from tfjob_controller.kube.cache.watchdecoder import (
    BookmarkDelta,
    Delta,
    MetadataOnly,
    ObjectReader,
    ReplaceDelta,
    WatchDecoder,
    replace_of,
    version_of_delta,
)
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.meta import ObjectT, Resource, key_of
from tfjob_controller.kube.requester import LineStream, Requester
from tfjob_controller.util.backoff import DecorrelatedBackoff
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# Bookmarks come each 60 s (apiserver cacher's defaultBookmarkFrequency), sent by a timer of about a second.
READ_TIMEOUT_SECONDS = 70.0
# client-go's range; the server ends the watch itself.
MIN_WATCH_SECONDS = 300
MAX_WATCH_SECONDS = 600
# For one response; an unpaged list of 20,000 pods is 140 MB.
LIST_TIMEOUT_SECONDS = 60.0
# A watchable version lives longer: etcd is compacted every five minutes.
EXPIRY_SECONDS = 60.0
# A watch that ends sooner without a line is a failure, not an end.
_SHORT_WATCH_SECONDS = 1.0


@dataclass(slots=True)
class ReflectorStatistics:
    """Counts since the start.

    `lists` are lists in pages, `streaming_lists` complete ones; `expired` are watches that ended with 410.
    """

    mode: str = ""
    last_resource_version: int = 0
    last_error: str = ""
    lists: int = 0
    list_pages: int = 0
    streaming_lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    expired: int = 0
    failures: int = 0
    undecodable: int = 0


class Reflector(Generic[ObjectT]):
    """See the module's docstring. `sink` is called with each delta and must not raise."""

    def __init__(
        self,
        requester: Requester,
        resource: Resource[ObjectT],
        sink: Callable[[Delta[ObjectT]], None],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._requester = requester
        self._resource = resource
        self._path = resource.path(namespace)
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {name: selector for name, selector in selectors.items() if selector}
        self._reader = ObjectReader(resource.decode)
        self._sink = sink
        self._read_timeout_seconds = read_timeout_seconds
        self._clock = clock
        self._rng = rng
        self._backoff = DecorrelatedBackoff(clock, rng)
        self._state = ListWatchState()
        self._counts = ReflectorStatistics()  # without the values that `statistics` adds
        self._last_error = ""
        self._failure: ApiError | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._stream: LineStream | None = None
        # Of the current request: when its response began, and whether a line of it has arrived.
        self._opened_at: float | None = None
        self._heard = False
        self._expired_at = -math.inf

    def run(self) -> None:
        """List and watch until `stop`."""
        while not self._stopped.is_set():
            self._opened_at, self._heard = None, False
            try:
                self._list() if self._state.mode is RequestMode.LIST else self._watch()
            except ApiError as error:
                if not self._stopped.is_set():
                    self._failed(error)
            except Exception:
                self._state.restart()
                raise

    def stop(self) -> None:
        """Make `run` return soon, even while it is blocked in a read."""
        self._stopped.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()

    @property
    def stopped(self) -> threading.Event:
        """Set once `stop` was called."""
        return self._stopped

    @property
    def last_error(self) -> str:
        """Why the last request failed; empty once a request succeeds."""
        return self._last_error

    @property
    def is_unserved(self) -> bool:
        """Whether the last request failed because the API server does not serve the kind."""
        return self._failure is not None and self._failure.is_not_found

    @property
    def is_forbidden(self) -> bool:
        """Whether the last request failed because of missing rights."""
        return self._failure is not None and self._failure.is_forbidden

    def statistics(self) -> ReflectorStatistics:
        return replace(
            self._counts,
            mode=self._state.mode.value,
            last_resource_version=self._state.version,
            last_error=self._last_error,
            undecodable=self._reader.failures,
        )

    # Lists

    def _list(self) -> None:
        listed: dict[str, ObjectT | MetadataOnly] = {}
        token: str | None = ""
        while token is not None and not self._stopped.is_set():
            page = self._page(token)
            for raw in page.items:
                obj = self._reader.read(raw)
                listed[key_of(obj)] = obj
            token = page.continue_ or None
            if token is None:
                self._recovered()
                self._apply(replace_of(listed, int(page.resource_version)))

    def _page(self, token: str) -> codec.ListPage:
        query = self._state.query(0, token) | self._selectors
        # No retries in the transport: the outcome decides which request comes next.
        body = self._requester.request(
            "GET", self._path, query=query, timeout_seconds=LIST_TIMEOUT_SECONDS, retry=False
        )
        self._counts.list_pages += 1
        try:
            page = codec.decode_list(body)
            int(page.resource_version)
        except ValueError as error:
            raise ApiError(NO_RESPONSE, "BrokenList", f"the response is not a list: {error}") from error
        return page

    # Watches

    def _watch(self) -> None:
        seconds = self._rng.randint(MIN_WATCH_SECONDS, MAX_WATCH_SECONDS)
        query = self._state.query(seconds) | self._selectors
        decoder = WatchDecoder(self._reader, initial_events=self._state.mode is RequestMode.STREAM)
        with self._requester.stream(self._path, query=query, read_timeout_seconds=self._read_timeout_seconds) as stream:
            try:
                if self._hold(stream):
                    self._follow(stream, decoder)
            finally:
                self._hold(None)

    def _hold(self, stream: LineStream | None) -> bool:
        """Make the open stream known to `stop`; returns False if that was called before."""
        with self._lock:
            self._stream = stream
        return not self._stopped.is_set()

    def _follow(self, lines: LineStream, decoder: WatchDecoder[ObjectT]) -> None:
        self._opened_at = self._clock.monotonic()
        self._counts.watches += 1
        self._recovered()
        for line in lines:
            self._heard = True
            event = decoder.feed(line)
            if event is not None:
                self._apply(event)
        self._check_end(decoder, self._clock.monotonic() - self._opened_at)

    def _check_end(self, decoder: WatchDecoder[ObjectT], lasted_seconds: float) -> None:
        """Raise ApiError if the watch ended early, so that a rest precedes the next one."""
        if decoder.is_listing:
            raise ApiError(NO_RESPONSE, "CutShort", "the streaming list ended before its end")
        if not self._heard and lasted_seconds < _SHORT_WATCH_SECONDS:
            raise ApiError(NO_RESPONSE, "ShortWatch", "the watch ended at once, without an event")

    # What came of it

    def _apply(self, event: Delta[ObjectT]) -> None:
        self._sink(event)
        if isinstance(event, ReplaceDelta):
            self._counts.streaming_lists += self._state.mode is RequestMode.STREAM
            self._counts.lists += self._state.mode is RequestMode.LIST
            self._state.record_list(event.version)
            log.info("listed", resource=self._name, objects=len(event.objects), version=event.version)
            return
        self._counts.bookmarks += isinstance(event, BookmarkDelta)
        self._counts.events += not isinstance(event, BookmarkDelta)
        self._state.record_progress(version_of_delta(event))

    def _recovered(self) -> None:
        if self._last_error:
            log.info("list or watch succeeded again", resource=self._name)
        self._last_error = ""
        self._failure = None

    def _failed(self, error: ApiError) -> None:
        """Record the failure, decide on the next request, and rest."""
        if self._state.lacks_streaming_lists(error):
            self._state.record_failure(error)
            log.info("the server has no streaming lists, listing in pages", resource=self._name, answer=str(error))
            return
        self._counts.failures += 1
        message = self._describe(error)
        is_news = message != self._last_error
        self._last_error = message
        self._failure = error
        delay = 0.0 if self._is_first_expiry(error) else self._backoff.next_seconds(error.retry_after_seconds or 0.0)
        self._state.record_failure(error, opened=self._opened_at is not None, silent=self._was_silent())
        level = logging.WARNING if is_news and not error.is_gone else logging.DEBUG
        log.log(level, "list or watch failed", resource=self._name, error=message, retry_seconds=round(delay, 2))
        if delay:
            self._clock.sleep(delay, self._stopped)

    def _is_first_expiry(self, error: ApiError) -> bool:
        """Whether a watch expired (410) for the first time in a while."""
        if not error.is_gone or self._state.mode is not RequestMode.WATCH:
            return False
        self._counts.expired += 1
        last, self._expired_at = self._expired_at, self._clock.monotonic()
        return self._expired_at - last > EXPIRY_SECONDS

    def _was_silent(self) -> bool:
        if self._opened_at is None or self._heard:
            return False
        return self._clock.monotonic() - self._opened_at >= self._read_timeout_seconds

    @property
    def _name(self) -> str:
        return self._resource.full_name

    def _describe(self, error: ApiError) -> str:
        verb = "list" if self._state.mode is RequestMode.LIST else "watch"
        if error.is_not_found:
            kind = f"{self._resource.kind} {self._resource.api_version}"
            needs, alternative = self._resource.requirement, self._resource.alternative
            remedy = f"that needs {needs}" if needs else "check that its CRD is installed"
            remedy = f"{remedy}, or {alternative}" if alternative else remedy
            return f"cannot {verb} {self._name}: the API server does not serve {kind}; {remedy}: {error}"
        return f"cannot {verb} {self._name}: {error}"
