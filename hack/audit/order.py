"""Brings the events of several watches into the order in which the server wrote them. Pure.

Theory of operation. Each watch is in order by itself, but watches have different delays. Every write gets a
resourceVersion, which counts over all kinds (etcd's revision). Events are therefore kept for `lag_seconds` and then
yielded in the order of that number. An event that arrives later is yielded nevertheless and counted as late: the
judgement of that time may be wrong.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    change: str
    obj: dict[str, Any]
    at: float

    @property
    def version(self) -> int:
        return int(self.obj["metadata"]["resourceVersion"])


@dataclass(slots=True)
class Order:
    """A buffer that sorts events (see the module). Not thread-safe."""

    lag_seconds: float
    late: int = 0
    _heap: list[tuple[int, int, Event]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _last: int = 0

    def add(self, event: Event) -> None:
        heapq.heappush(self._heap, (event.version, next(self._numbers), event))

    def due(self, now: float) -> Iterator[Event]:
        """Yields the events that were kept long enough, in order."""
        while self._heap and self._heap[0][2].at + self.lag_seconds <= now:
            version, _, event = heapq.heappop(self._heap)
            self.late += version < self._last
            self._last = max(self._last, version)
            yield event
