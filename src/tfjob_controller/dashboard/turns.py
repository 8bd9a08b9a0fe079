"""Threads that users share by turns: a user with many calls waits, and others do not."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from tfjob_controller.client.errors import ClientError
from tfjob_controller.dashboard.shares import tenant_of

ResultT = TypeVar("ResultT")


class BusyError(ClientError):
    """A person has too many requests that wait."""


class PersonTurns:
    """Runs calls in `threads` threads: of a person at most `each` at a time, and `waiting` wait for them.

    The service accounts of a namespace, of which its users have as many as they like, count as one person here. The
    next call is that of whoever has the fewest running ones, then of whoever has waited the longest; a person's calls
    keep their order. Thread-safe.
    """

    def __init__(self, name: str, *, threads: int, each: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._each = each
        self._max_waiting = waiting
        self._lock = threading.Lock()
        self._free = threads
        # By tenant.
        self._running: Counter[str] = Counter()
        # By person; whoever had a turn last is at the end.
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}

    async def run(self, person: str, call: Callable[[], ResultT]) -> ResultT:
        """The result of the call, or its exception. Raises `BusyError` if too many calls of the person wait."""
        return await asyncio.wrap_future(self.submit(person, call))

    def submit(self, person: str, call: Callable[[], ResultT]) -> Future[ResultT]:
        """As `run`, for threads, which must not be those of the same turns."""
        future: Future[ResultT] = Future()
        with self._lock:
            waiting = self._waiting.setdefault(person, deque())
            if len(waiting) >= self._max_waiting:
                waiting = self._waiting[person] = deque(request for request in waiting if not request[0].cancelled())
            if len(waiting) >= self._max_waiting:
                raise BusyError("too many of your requests are waiting: close some windows and try again")
            waiting.append((future, call))
            self._start_next()
        return future

    def _start_next(self) -> None:
        """Gives free threads to those who are next. The lock is held."""
        while self._free and (person := self._next()) is not None:
            waiting = self._waiting.pop(person)
            future, call = waiting.popleft()
            if waiting:
                self._waiting[person] = waiting
            if future.set_running_or_notify_cancel():
                self._free -= 1
                self._running[tenant_of(person)] += 1
                self._pool.submit(self._run, person, future, call)

    def _next(self) -> str | None:
        person = min(self._waiting, key=lambda each: self._running[tenant_of(each)], default=None)
        return person if person is not None and self._running[tenant_of(person)] < self._each else None

    def _run(self, person: str, future: Future[Any], call: Callable[[], Any]) -> None:
        try:
            result = call()
        except BaseException as error:
            self._end(person)
            future.set_exception(error)
        else:
            self._end(person)
            future.set_result(result)

    def _end(self, person: str) -> None:
        with self._lock:
            self._free += 1
            tenant = tenant_of(person)
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]
            self._start_next()
