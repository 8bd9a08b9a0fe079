"""Turns of requests: a client with many requests, on any number of connections, waits, and others do not.

A few requests are in progress at a time, so that a turn of the event loop and the queue of a thread pool stay short.
The next one is of the client that has waited the longest, and of its connections the one that has. A request gives its
place back once it is answered, or after `PLACE_SECONDS`: one that waits for the API server, for the rest of its body or
for its reader takes no time of others.

Everything runs in the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from tfjob_controller.httpserver.turns import TurnQueue, TurnTaker

# A browser opens six connections.
EACH, TOTAL = 8, 32
PLACE_SECONDS = 0.1


class RequestTurns:
    """At most `each` requests of a client and `total` of all are in progress."""

    def __init__(self, each: int = EACH, total: int = TOTAL) -> None:
        self._each = each
        self._total = total
        self._waiting = TurnQueue()
        self._clients: dict[TurnTaker, str] = {}
        self._running: dict[TurnTaker, asyncio.TimerHandle] = {}
        self._counts: Counter[str] = Counter()
        self._is_scheduled = False

    def wait(self, client: str, request: TurnTaker) -> None:
        """Calls `take_turn` in a later turn of the event loop; `end` must follow once the request is over."""
        self.end(request)
        self._clients[request] = client
        self._waiting.add(client, request)
        self._schedule()

    def end(self, request: TurnTaker) -> None:
        """The request is answered, or its connection is lost."""
        client = self._clients.pop(request, None)
        if client is None:
            return
        if (timer := self._running.pop(request, None)) is None:
            self._waiting.remove(client, request)
            return
        timer.cancel()
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]
        self._schedule()

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
        request = self._waiting.pop(client)
        self._counts[client] += 1
        self._running[request] = asyncio.get_running_loop().call_later(PLACE_SECONDS, self.end, request)
        request.take_turn()
