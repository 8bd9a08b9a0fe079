"""Turns: which request is answered next, so that no client delays the others.

Theory of operation. A request waits if its connection has sent more than one, or if its address exceeds its rate. In
each turn of the event loop, one waiting request of each address is answered, and the connections of an address take
turns. Between two turns the event loop serves other clients.

The rate of an address is a bucket of tokens. A connection takes one, which pays for its first request. Each further
request takes one as well, but leaves half of the bucket to connections: a kubelet opens a connection for each probe, so
its probes are answered at once although another client with the same address sends more requests than it may. A request
without a token waits; a connection without a token is refused.

Threads: everything runs in the event loop's. Source: the generic cell rate algorithm of ITU-T I.371, in which the time
at which a bucket is full again is all that is known of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol

from tfjob_controller.httpserver.app import RequestRate

# Whoever has more addresses than this gets new buckets; each address has to complete TCP's handshake.
MAX_ADDRESSES = 1024
# Sums of times are not exact.
_ROUNDING_SECONDS = 1e-6


class TurnTaker(Protocol):
    """A connection that waits for its turn."""

    def take_turn(self) -> None: ...


class TurnQueue:
    """What waits, by client: the client that has waited the longest comes first, and of each what it sent first."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[TurnTaker, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[str]:
        """Yields the clients in their order."""
        return iter(self._waiting)

    def add(self, client: str, taker: TurnTaker) -> None:
        self._waiting.setdefault(client, {})[taker] = None

    def remove(self, client: str, taker: TurnTaker) -> None:
        """Forgets what may be waiting."""
        of_client = self._waiting.get(client, {})
        of_client.pop(taker, None)
        if not of_client:
            self._waiting.pop(client, None)

    def pop(self, client: str) -> TurnTaker:
        """Removes and returns what comes next of a client that waits; the client is the last in the order then."""
        of_client = self._waiting.pop(client)
        taker = next(iter(of_client))
        del of_client[taker]
        if of_client:
            self._waiting[client] = of_client
        return taker


class AddressRates:
    """The buckets of the addresses that were used last. Times are in seconds, on any clock."""

    def __init__(self, rate: RequestRate) -> None:
        self._token_seconds = 1.0 / rate.per_second
        # What an address may be ahead of its rate, without the token that it takes.
        self._connection_seconds = (rate.burst - 1) * self._token_seconds
        self._request_seconds = (rate.burst // 2 - 1) * self._token_seconds
        # When the bucket of an address is full; the address that was used last is the last.
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def try_connection(self, address: str, now: float) -> bool:
        """Takes a token; False if there is none."""
        return self._try(address, now, self._connection_seconds)

    def try_request(self, address: str, now: float) -> bool:
        """Takes a token of those for requests; False if there is none."""
        return self._try(address, now, self._request_seconds)

    def reserve_request(self, address: str, now: float) -> float:
        """Takes a token of those for requests, and returns the seconds until it exists."""
        full_at = self._full_at.get(address, now)
        self._take(address, now)
        return max(0.0, full_at - now - self._request_seconds)

    def _try(self, address: str, now: float, most_seconds: float) -> bool:
        if self._full_at.get(address, now) - now > most_seconds + _ROUNDING_SECONDS:
            return False
        self._take(address, now)
        return True

    def _take(self, address: str, now: float) -> None:
        self._full_at[address] = max(now, self._full_at.pop(address, now)) + self._token_seconds
        if len(self._full_at) > MAX_ADDRESSES:
            del self._full_at[next(iter(self._full_at))]


class Turns:
    """The turns of the connections of one server. To be made in its event loop."""

    def __init__(self, rate: RequestRate | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._rates = None if rate is None else AddressRates(rate)
        # By address. Each has one scheduled turn.
        self._waiting: dict[str, dict[TurnTaker, None]] = {}

    def try_connection(self, address: str) -> bool:
        """Whether a new connection is accepted. It may answer one request without a turn."""
        return self._rates is None or self._rates.try_connection(address, self._loop.time())

    def try_request(self, address: str) -> bool:
        """Whether a request of this address may be answered now; otherwise it has to `wait`."""
        if self._rates is None:
            return address not in self._waiting
        return address not in self._waiting and self._rates.try_request(address, self._loop.time())

    def wait(self, address: str, connection: TurnTaker) -> None:
        """Calls `take_turn` of the connection in a later turn of the event loop."""
        if address not in self._waiting:
            self._waiting[address] = {}
            self._schedule(address)
        self._waiting[address][connection] = None

    def leave(self, address: str, connection: TurnTaker) -> None:
        """Forgets a connection that may be waiting."""
        self._waiting.get(address, {}).pop(connection, None)

    def _schedule(self, address: str) -> None:
        seconds = 0.0 if self._rates is None else self._rates.reserve_request(address, self._loop.time())
        if seconds > 0.0:
            self._loop.call_later(seconds, self._run, address)
        else:
            self._loop.call_soon(self._run, address)

    def _run(self, address: str) -> None:
        waiting = self._waiting[address]
        connection = next(iter(waiting), None)
        if connection is not None:
            del waiting[connection]
        if waiting:
            self._schedule(address)
        else:
            del self._waiting[address]
        if connection is not None:
            connection.take_turn()
