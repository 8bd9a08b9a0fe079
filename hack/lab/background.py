"""Threads that run beside the others until they are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Self


class Background:
    """Runs functions, each in a thread, from `start` to `stop`, or in a `with` block. The base of monitors."""

    def __init__(self, *functions: Callable[[], None], join_seconds: float = 30.0) -> None:
        self.stopping = threading.Event()
        self._join_seconds = join_seconds
        self._threads = [
            threading.Thread(target=function, name=function.__qualname__, daemon=True) for function in functions
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(self._join_seconds)

    def ticks(self, seconds: float) -> Iterator[None]:
        """Yields every so many seconds until `stop`."""
        while not self.stopping.wait(seconds):
            yield

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Repeated(Background):
    """Calls a function every so many seconds."""

    def __init__(self, seconds: float, function: Callable[[], None]) -> None:
        super().__init__(self._repeat)
        self._seconds, self._function = seconds, function

    def _repeat(self) -> None:
        for _ in self.ticks(self._seconds):
            self._function()
