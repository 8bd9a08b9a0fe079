"""What happens when: a heap of events, taken instant by instant. Nothing here looks at a clock."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Generic, TypeVar

EventT = TypeVar("EventT")


@dataclass(slots=True)
class Timeline(Generic[EventT]):
    """Events of one instant come in the order in which they were put. Moments are milliseconds."""

    now: int = 0
    _heap: list[tuple[int, int, EventT]] = field(default_factory=list)
    _count: int = 0

    def put(self, moment: int, event: EventT) -> None:
        """Not before the present: what is late happens now."""
        self._count += 1
        heapq.heappush(self._heap, (max(moment, self.now), self._count, event))

    def __bool__(self) -> bool:
        return bool(self._heap)

    def take(self) -> list[EventT]:
        """All events of the next instant; the time is then that."""
        self.now = self._heap[0][0]
        events: list[EventT] = []
        while self._heap and self._heap[0][0] == self.now:
            events.append(heapq.heappop(self._heap)[2])
        return events
