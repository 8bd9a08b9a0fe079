"""Requests of the gang scheduler that go wrong, by chance: what the proxy before the API server is asked to do.

Theory of operation. Each kind of fault is on for a while, and hits a share of the requests that it is meant for; both
come from the plan. Which ones it hits is decided by a generator of its own seed: the order in which requests come is
nobody's to repeat.

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
# By target: the method, and what is found in the path and its query.
Targets = Mapping[str, tuple[str, re.Pattern[str]]]
TARGETS: Targets = {
    BINDING: ("POST", re.compile(r"/binding(\?|$)")),
    STATUS: ("PATCH", re.compile(r"/gangs/[^/]+/status(\?|$)")),
}
# The gang scheduler gives a Binding up after 10 s without an answer: its time-out after the server has done it.
_TIMED_OUT_SECONDS = 11.0
_SECONDS = (1.0, 5.0)
_SHARES = (0.1, 0.6)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens to which requests; `make` gets a chance in [0, 1)."""

    target: str
    make: Callable[[float], Fault]
    most: float = 1.0
    """The highest share that it hits."""


TROUBLES: Mapping[str, Trouble] = {
    "bindings 409": Trouble(BINDING, lambda _: Reply(409, "Conflict")),
    "bindings 429": Trouble(BINDING, lambda _: Reply(429, "TooManyRequests", retry_after_seconds=1)),
    "bindings 500": Trouble(BINDING, lambda _: Reply(500, "InternalError")),
    "bindings cut before": Trouble(BINDING, lambda _: LoseRequest()),
    "bindings cut after": Trouble(BINDING, lambda _: LoseAnswer()),
    "bindings late": Trouble(BINDING, lambda chance: Late(0.2 + 2.0 * chance)),
    "bindings timed out": Trouble(BINDING, lambda _: Late(_TIMED_OUT_SECONDS), most=0.2),
    "gang statuses refused": Trouble(STATUS, lambda chance: Reply((409, 429, 500)[int(chance * 3)])),
    "gang statuses cut after": Trouble(STATUS, lambda _: LoseAnswer()),
    "gang statuses late": Trouble(STATUS, lambda chance: Late(0.2 + 2.0 * chance)),
}


@dataclass(frozen=True, slots=True)
class _On:
    kind: str
    share: float
    until: float


class RequestFaults:
    """See the module. Thread-safe."""

    def __init__(
        self,
        seed: int,
        troubles: Mapping[str, Trouble] | None = None,
        targets: Targets | None = None,
        seconds: tuple[float, float] = _SECONDS,
    ) -> None:
        """By default the gang scheduler's `TROUBLES`. Each kind is on for at least and at most so many seconds."""
        self.hits: Counter[str] = Counter()
        self._rng = random.Random(seed)  # noqa: S311 -- to be repeated, not to be kept secret
        self._lock = threading.Lock()
        self._on: list[_On] = []
        self._troubles = TROUBLES if troubles is None else troubles
        self._seconds = seconds
        self._targets = TARGETS if targets is None else targets

    def turn_on(self, kind: str, chance: float) -> None:
        """For some seconds, more the higher the chance is."""
        low, high = self._seconds
        until = time.monotonic() + low + (high - low) * chance
        least, most = _SHARES
        share = min(least + (most - least) * chance, self._troubles[kind].most)
        with self._lock:
            self._on = [each for each in self._on if each.until > time.monotonic()] + [_On(kind, share, until)]

    def turn_off(self) -> None:
        with self._lock:
            self._on = []

    def choose(self, method: str, path: str) -> Fault | None:
        """See `localcluster.faultproxy.Choose`."""
        now = time.monotonic()
        with self._lock:
            for each in self._on:
                trouble = self._troubles[each.kind]
                if each.until > now and self._is_aimed_at(trouble, method, path) and self._rng.random() < each.share:
                    self.hits[each.kind] += 1
                    return trouble.make(self._rng.random())
        return None

    def _is_aimed_at(self, trouble: Trouble, method: str, path: str) -> bool:
        verb, part = self._targets[trouble.target]
        return method == verb and part.search(path) is not None
