"""Limits how many bytes per second are read, so that an upload leaves bandwidth for training."""

from __future__ import annotations

import threading

from tfjob_controller.util.clock import Clock


class Bandwidth:
    """A token bucket that several threads share. It may be overdrawn by one block, whose taker then waits.

    The bucket holds one second's worth of bytes, and is full at the beginning.
    """

    def __init__(self, bytes_per_second: int, clock: Clock) -> None:
        """`bytes_per_second` is 0 for no limit."""
        self._rate = bytes_per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = float(bytes_per_second)
        self._filled_at = clock.monotonic()

    def take(self, byte_count: int, stop: threading.Event) -> None:
        """Takes bytes out of the bucket, and waits until it is no longer overdrawn or `stop` is set."""
        if not self._rate:
            return
        with self._lock:
            now = self._clock.monotonic()
            self._tokens = min(self._rate, self._tokens + (now - self._filled_at) * self._rate)
            self._filled_at = now
            self._tokens -= byte_count
            seconds = max(0.0, -self._tokens / self._rate)
        if seconds:
            self._clock.sleep(seconds, stop)
