"""Runs delayed actions in one thread. `stop` ends it and drops the actions that are left."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

_JOIN_SECONDS = 10.0
_LONGEST_SECONDS = 60.0


class Timer:
    """Runs delayed actions (see the module). `later` is thread-safe."""

    def __init__(self, name: str) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._thread.join(_JOIN_SECONDS)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Runs `action` after that time; it must not raise."""
        with self._changed:
            heapq.heappush(self._heap, (time.monotonic() + seconds, next(self._numbers), action))
            self._changed.notify_all()

    def _run(self) -> None:
        while (action := self._next()) is not None:
            action()

    def _next(self) -> Callable[[], None] | None:
        """Waits for the next action and returns it; None after `stop`."""
        with self._changed:
            while not self._is_stopping:
                left = self._heap[0][0] - time.monotonic() if self._heap else _LONGEST_SECONDS
                if left <= 0:
                    return heapq.heappop(self._heap)[2]
                self._changed.wait(left)
        return None
