"""Faults of requests, which the proxies in front of the API server inject.

Theory of operation. Each kind of fault is active for some time and affects a share of the requests of its target; the
plan determines both. A separate random generator chooses the affected requests, since the order of requests cannot be
repeated.

Threads: `choose` is called in those of the proxies.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lab.injection import between
from localcluster.faultproxy import Fault, Late, LoseAnswer, LoseRequest, Reply

BINDING, STATUS = "bindings", "gang statuses"
_CHILDREN = r"/(jobs|services|configmaps|secrets|gangs)"
# By target: the method, and a pattern of the path with its query.
TARGETS: Mapping[str, tuple[str, re.Pattern[str]]] = {
    BINDING: ("POST", re.compile(r"/binding(\?|$)")),
    STATUS: ("PATCH", re.compile(r"/gangs/[^/]+/status(\?|$)")),
    "creates": ("POST", re.compile(rf"{_CHILDREN}(\?|$)")),
    "deletes": ("DELETE", re.compile(r"/namespaces/")),
    "patches": ("PATCH", re.compile(r"/(tfjobs|trainjobs|jobs|gangs|services)/[^/?]+(\?|$)")),
    "statuses": ("PATCH", re.compile(r"/(tfjobs|trainjobs)/[^/]+/status(\?|$)")),
    "puts": ("PUT", re.compile(r"/apis/(kubeflow\.org|scheduling\.kubeflow\.org)/|/batch/")),
    "reads": ("GET", re.compile(r"/namespaces/[^/]+/(tfjobs|trainjobs|jobs|services|pods|gangs)/[^/?]+$")),
    "lists": ("GET", re.compile(r"^(?!.*watch=).*(\?)")),
    "watches": ("GET", re.compile(r"[?&]watch=")),
    "leases": ("PUT", re.compile(r"/leases/")),
    "events": ("POST", re.compile(r"/events(\?|$)")),
}
# Requests for a Binding time out after 10 s: the server processes it, and the response comes after the timeout.
_TIMED_OUT_SECONDS = 11.0
_LATE_SECONDS = (0.2, 2.2)
# A request of the controller times out after 30 s, and one for its Lease after 2 s.
_CONTROLLER_LATE_SECONDS = (0.2, 4.0)
_SHARES = (0.1, 0.6)
# Minimum and maximum time that a kind of fault lasts, since many kinds share the time of a run.
_ACTIVE_SECONDS = (0.5, 2.5)


@dataclass(frozen=True, slots=True)
class RequestFault:
    """The fault of the requests of a target; `make` gets a random number in [0, 1).

    `most` is the highest share of requests that are affected.
    """

    target: str
    make: Callable[[float], Fault]
    most: float = 1.0


GANG_FAULTS: Mapping[str, RequestFault] = {
    "bindings 409": RequestFault(BINDING, lambda _: Reply(409, "Conflict")),
    "bindings 429": RequestFault(BINDING, lambda _: Reply(429, "TooManyRequests", retry_after_seconds=1)),
    "bindings 500": RequestFault(BINDING, lambda _: Reply(500, "InternalError")),
    "bindings cut before": RequestFault(BINDING, lambda _: LoseRequest()),
    "bindings cut after": RequestFault(BINDING, lambda _: LoseAnswer()),
    "bindings late": RequestFault(BINDING, lambda chance: Late(between(_LATE_SECONDS, chance))),
    "bindings timed out": RequestFault(BINDING, lambda _: Late(_TIMED_OUT_SECONDS), most=0.2),
    "gang statuses refused": RequestFault(STATUS, lambda chance: Reply((409, 429, 500)[int(chance * 3)])),
    "gang statuses cut after": RequestFault(STATUS, lambda _: LoseAnswer()),
    "gang statuses late": RequestFault(STATUS, lambda chance: Late(between(_LATE_SECONDS, chance))),
}
_REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
# The status codes that are injected into each kind of request of the controllers.
CODES: Mapping[str, tuple[int, ...]] = {
    "creates": (409, 429, 500, 503),
    "deletes": (409, 429, 500),
    "patches": (409, 429, 500),
    "statuses": (409, 429, 500, 503),
    "puts": (409, 429, 500),
    "reads": (429, 500),
    "lists": (410, 429, 500),
    "watches": (410, 429, 500),
    "leases": (409, 429, 500),
    "events": (429, 500),
}


def _refusal(target: str, code: int) -> RequestFault:
    reply = Reply(code, _REASONS[code], retry_after_seconds=1 if code == 429 else None)
    return RequestFault(target, lambda _: reply)


def _faults_of(target: str) -> dict[str, RequestFault]:
    return {f"{target} {code}": _refusal(target, code) for code in CODES[target]} | {
        f"{target} lost": RequestFault(target, lambda _: LoseRequest()),
        f"{target} unanswered": RequestFault(target, lambda _: LoseAnswer()),
        f"{target} late": RequestFault(target, lambda chance: Late(between(_CONTROLLER_LATE_SECONDS, chance))),
    }


REQUEST_FAULTS: Mapping[str, RequestFault] = {
    **GANG_FAULTS,
    **{kind: fault for target in CODES for kind, fault in _faults_of(target).items()},
}


@dataclass(frozen=True, slots=True)
class _Active:
    kind: str
    share: float
    until: float


class RequestFaults:
    """Chooses the fault of each request (see the module). Thread-safe."""

    def __init__(self, seed: int) -> None:
        self.hits: Counter[str] = Counter()
        self._rng = random.Random(seed)  # noqa: S311 -- to be repeated, not to be kept secret
        self._lock = threading.Lock()
        self._active: list[_Active] = []

    @property
    def kinds(self) -> Iterable[str]:
        return REQUEST_FAULTS.keys()

    def turn_on(self, kind: str, chance: float) -> None:
        """Activates a kind for some seconds; a higher chance means longer and more requests."""
        now, share = time.monotonic(), min(between(_SHARES, chance), REQUEST_FAULTS[kind].most)
        with self._lock:
            self._active = [active for active in self._active if active.until > now]
            self._active.append(_Active(kind, share, now + between(_ACTIVE_SECONDS, chance)))

    def turn_off(self) -> None:
        with self._lock:
            self._active = []

    def choose(self, method: str, path: str) -> Fault | None:
        """Returns the fault of a request, or None. Implements `localcluster.faultproxy.Choose`."""
        now = time.monotonic()
        with self._lock:
            for active in self._active:
                fault = REQUEST_FAULTS[active.kind]
                verb, part = TARGETS[fault.target]
                is_target = method == verb and part.search(path) is not None
                if active.until > now and is_target and self._rng.random() < active.share:
                    self.hits[active.kind] += 1
                    return fault.make(self._rng.random())
        return None
