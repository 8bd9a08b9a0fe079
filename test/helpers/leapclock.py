"""The machine's clock, which a test can move forward, for deadlines of programs that otherwise run in real time.

A short deadline can pass before the test has taken its steps, and a long one makes the test slow. With this clock the
deadline is long, and passes when the test moves the clock.
"""

from __future__ import annotations

from tfjob_controller.util.clock import RealClock


class LeapClock(RealClock):
    """Wall time stays real. A thread that sleeps is not woken by a leap."""

    def __init__(self) -> None:
        self._ahead_seconds = 0.0

    def leap(self, seconds: float) -> None:
        """Moves the monotonic time forward. Call it from one thread at a time."""
        self._ahead_seconds += seconds

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead_seconds
