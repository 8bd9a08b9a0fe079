"""Faults of requests of the gang scheduler, which the proxy in front of the API server injects.

Theory of operation. Each kind of fault is active for some time and affects a share of the requests of its target; the
plan determines both. A separate random generator chooses the affected requests, since the order of requests cannot be
repeated.

Threads: `choose` is called in those of the proxy.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from localcluster.faultproxy import Fault, Late, LoseAnswer, LoseRequest, Reply

BINDING, STATUS = "bindings", "gang statuses"
# By target: the method, and a pattern of the path with its query.
Targets = Mapping[str, tuple[str, re.Pattern[str]]]
TARGETS: Targets = {
    BINDING: ("POST", re.compile(r"/binding(\?|$)")),
    STATUS: ("PATCH", re.compile(r"/gangs/[^/]+/status(\?|$)")),
}
# Requests for a Binding time out after 10 s: the server processes it, and the response comes after the timeout.
_TIMED_OUT_SECONDS = 11.0
_SECONDS = (1.0, 5.0)
_SHARES = (0.1, 0.6)


@dataclass(frozen=True, slots=True)
class RequestFault:
    """The fault of the requests of a target; `make` gets a random number in [0, 1)."""

    target: str
    make: Callable[[float], Fault]
    most: float = 1.0
    """The highest share of requests that are affected."""


REQUEST_FAULTS: Mapping[str, RequestFault] = {
    "bindings 409": RequestFault(BINDING, lambda _: Reply(409, "Conflict")),
    "bindings 429": RequestFault(BINDING, lambda _: Reply(429, "TooManyRequests", retry_after_seconds=1)),
    "bindings 500": RequestFault(BINDING, lambda _: Reply(500, "InternalError")),
    "bindings cut before": RequestFault(BINDING, lambda _: LoseRequest()),
    "bindings cut after": RequestFault(BINDING, lambda _: LoseAnswer()),
    "bindings late": RequestFault(BINDING, lambda chance: Late(0.2 + 2.0 * chance)),
    "bindings timed out": RequestFault(BINDING, lambda _: Late(_TIMED_OUT_SECONDS), most=0.2),
    "gang statuses refused": RequestFault(STATUS, lambda chance: Reply((409, 429, 500)[int(chance * 3)])),
    "gang statuses cut after": RequestFault(STATUS, lambda _: LoseAnswer()),
    "gang statuses late": RequestFault(STATUS, lambda chance: Late(0.2 + 2.0 * chance)),
}


@dataclass(frozen=True, slots=True)
class _Active:
    kind: str
    share: float
    until: float


class RequestFaults:
    """Chooses the fault of each request (see the module). Thread-safe."""

    def __init__(
        self,
        seed: int,
        faults: Mapping[str, RequestFault] | None = None,
        targets: Targets | None = None,
        seconds: tuple[float, float] = _SECONDS,
    ) -> None:
        """By default `REQUEST_FAULTS` of the gang scheduler, each active for `seconds` (minimum and maximum)."""
        self.hits: Counter[str] = Counter()
        self._rng = random.Random(seed)  # noqa: S311 -- to be repeated, not to be kept secret
        self._lock = threading.Lock()
        self._active: list[_Active] = []
        self._request_faults = REQUEST_FAULTS if faults is None else faults
        self._seconds = seconds
        self._targets = TARGETS if targets is None else targets

    def turn_on(self, kind: str, chance: float) -> None:
        """Activates a kind for some seconds; a higher chance means longer and more requests."""
        low, high = self._seconds
        until = time.monotonic() + low + (high - low) * chance
        least, most = _SHARES
        share = min(least + (most - least) * chance, self._request_faults[kind].most)
        with self._lock:
            self._active = [each for each in self._active if each.until > time.monotonic()] + [
                _Active(kind, share, until)
            ]

    def turn_off(self) -> None:
        with self._lock:
            self._active = []

    def choose(self, method: str, path: str) -> Fault | None:
        """Returns the fault of a request, or None. Implements `localcluster.faultproxy.Choose`."""
        now = time.monotonic()
        with self._lock:
            for each in self._active:
                fault = self._request_faults[each.kind]
                if each.until > now and self._is_aimed_at(fault, method, path) and self._rng.random() < each.share:
                    self.hits[each.kind] += 1
                    return fault.make(self._rng.random())
        return None

    def _is_aimed_at(self, fault: RequestFault, method: str, path: str) -> bool:
        verb, part = self._targets[fault.target]
        return method == verb and part.search(path) is not None
