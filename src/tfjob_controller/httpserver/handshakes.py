"""The order of TLS handshakes, each of which takes about a millisecond of the event loop.

Theory of operation. A connection waits here from the moment at which it is accepted until its handshake may begin. One
begins in a turn of the event loop, so that open connections are served between two of them, and at a rate for all
addresses together, so that the CPU is left to other threads. The next one is of the address whose last handshake began
the longest ago: a client that has none waiting goes before those that always have some, whatever their number. Beyond a
bound, the address with the most waiting connections loses its oldest.

Threads: everything runs in the event loop's. Source: RFC 8290, which serves new flows first.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from tfjob_controller.httpserver.app import RequestRate
from tfjob_controller.httpserver.turns import MAX_ADDRESSES, AddressRates

_NEVER = float("-inf")
# The bucket of all addresses together.
_ALL = ""


class Handshakes:
    """The connections that wait for their handshake, `most` of them.

    Without a rate only their order is decided.
    """

    def __init__(self, rate: RequestRate | None, most: int) -> None:
        self._rates = None if rate is None else AddressRates(rate)
        self._token_seconds = 0.0 if rate is None else 1.0 / rate.per_second
        self._most = most
        # By address; the oldest first.
        self._waiting: dict[str, dict[socket.socket, Callable[[], object]]] = {}
        self._count = 0
        # When the last handshake of an address began; the one that began last is the last.
        self._began: dict[str, float] = {}
        self._timer: asyncio.Handle | None = None

    def wait(self, address: str, client: socket.socket, begin: Callable[[], object]) -> None:
        """Calls `begin` in a later turn of the event loop, or closes the client."""
        self._waiting.setdefault(address, {})[client] = begin
        self._count += 1
        if self._count > self._most:
            self._pop(max(self._waiting, key=lambda each: (len(self._waiting[each]), self._last(each))))[0].close()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._run)

    def close(self) -> None:
        """Closes the clients that wait."""
        while self._waiting:
            self._pop(next(iter(self._waiting)))[0].close()

    def _run(self) -> None:
        self._timer, seconds = None, 0.0
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self._waiting:
            return
        if self._rates is None or self._rates.try_connection(_ALL, now):
            self._begin(min(self._waiting, key=self._last), now)
        else:
            seconds = self._token_seconds
        if self._waiting:
            self._timer = loop.call_later(seconds, self._run) if seconds else loop.call_soon(self._run)

    def _begin(self, address: str, now: float) -> None:
        self._began.pop(address, None)
        self._began[address] = now
        if len(self._began) > MAX_ADDRESSES:
            del self._began[next(iter(self._began))]
        self._pop(address)[1]()

    def _last(self, address: str) -> float:
        return self._began.get(address, _NEVER)

    def _pop(self, address: str) -> tuple[socket.socket, Callable[[], object]]:
        """Removes the oldest of an address."""
        of_address = self._waiting[address]
        client = next(iter(of_address))
        begin = of_address.pop(client)
        if not of_address:
            del self._waiting[address]
        self._count -= 1
        return client, begin
