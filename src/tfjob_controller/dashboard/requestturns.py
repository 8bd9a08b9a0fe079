"""Turns of requests: whoever sends many, on any number of connections, waits for their own, and nobody else does.

A few requests are in progress at a time, so that a turn of the event loop and the queue of a thread pool stay short.
The next one is of the client that has waited the longest, and of its connections the one that has. A request gives its
place back once it is answered, or after `PLACE_SECONDS`: one that waits for the API server, for the rest of its body or
for its reader takes no time of others.

Everything runs in the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol

# A browser opens six connections.
EACH, TOTAL = 8, 32
PLACE_SECONDS = 0.1


class WaitingRequest(Protocol):
    """A connection with a request."""

    def take_turn(self) -> None: ...


class RequestTurns:
    """At most `each` requests of a client and `total` of all are in progress."""

    def __init__(self, each: int = EACH, total: int = TOTAL) -> None:
        self._each = each
        self._total = total
        # By client, the one that has waited the longest first; of each, the oldest request first.
        self._waiting: dict[str, dict[WaitingRequest, None]] = {}
        self._clients: dict[WaitingRequest, str] = {}
        self._running: dict[WaitingRequest, asyncio.TimerHandle] = {}
        self._counts: Counter[str] = Counter()
        self._is_scheduled = False

    def wait(self, client: str, request: WaitingRequest) -> None:
        """Calls `take_turn` in a later turn of the event loop; `end` must follow once the request is over."""
        self.end(request)
        self._clients[request] = client
        self._waiting.setdefault(client, {})[request] = None
        self._schedule()

    def end(self, request: WaitingRequest) -> None:
        """The request is answered, or its connection is lost."""
        client = self._clients.pop(request, None)
        if client is None:
            return
        if (timer := self._running.pop(request, None)) is None:
            self._leave(client, request)
            return
        timer.cancel()
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]
        self._schedule()

    def _leave(self, client: str, request: WaitingRequest) -> None:
        of_client = self._waiting[client]
        del of_client[request]
        if not of_client:
            del self._waiting[client]

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        while len(self._running) < self._total and (client := self._next()) is not None:
            self._begin(client)

    def _next(self) -> str | None:
        return next((client for client in self._waiting if self._counts[client] < self._each), None)

    def _begin(self, client: str) -> None:
        of_client = self._waiting.pop(client)
        request = next(iter(of_client))
        del of_client[request]
        if of_client:
            # The last in the order.
            self._waiting[client] = of_client
        self._counts[client] += 1
        self._running[request] = asyncio.get_running_loop().call_later(PLACE_SECONDS, self.end, request)
        request.take_turn()
