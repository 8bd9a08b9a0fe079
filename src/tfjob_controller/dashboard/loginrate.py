"""Limits the refused logins that reach the API server, by address and in total.

A login counts when it is tried, and no longer once it is accepted. Addresses that were refused before have a smaller
budget together than new ones, so that those who guess tokens keep nobody else from a first login.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cachetools import TTLCache

from tfjob_controller.dashboard.turns import BusyError
from tfjob_controller.util.clock import Clock

OF_ADDRESS, _ADDRESS_SECONDS = 5, 60.0
OF_REFUSED, OF_NEW, _WINDOW_SECONDS = 20, 50, 10.0
_MAX_ADDRESSES = 4096


class LoginRate:
    """Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tried: TTLCache[str, list[int]] = TTLCache(_MAX_ADDRESSES, _ADDRESS_SECONDS, timer=clock.monotonic)
        self._window = 0
        # Tries of new addresses and of others in this window.
        self._totals = [0], [0]

    @contextmanager
    def trying(self, address: str) -> Iterator[None]:
        """A login; it was refused if the block raises. An empty address is that of a proxy, which counts in all only.

        Raises `BusyError` if too many were refused.
        """
        with self._lock:
            counts = self._take(address)
        yield
        with self._lock:
            for count in counts:
                count[0] -= 1

    def _take(self, address: str) -> list[list[int]]:
        """The counts that this login has raised."""
        if (window := int(self._clock.monotonic() // _WINDOW_SECONDS)) != self._window:
            self._window, self._totals = window, ([0], [0])
        of_address = self._tried.get(address, [0]) if address else [0]
        is_new = address and not of_address[0]
        total, most = (self._totals[0], OF_NEW) if is_new else (self._totals[1], OF_REFUSED)
        if total[0] >= most or of_address[0] >= OF_ADDRESS:
            raise BusyError("too many logins were refused: try again in a minute")
        if address and address not in self._tried:
            self._tried[address] = of_address
        counts = [total, of_address]
        for count in counts:
            count[0] += 1
        return counts
