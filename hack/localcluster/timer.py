"""Runs delayed actions in one thread. `stop` ends it and drops the actions that are left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

_JOIN_SECONDS = 10.0


class Timer:
    """Runs delayed actions (see the module). `later` is thread-safe."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_SECONDS)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Runs `action` after that time; it must not raise."""
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, action)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()
