"""Concurrent writes over a thread pool that all syncs share.

Theory of operation. The tasks of a sync form a queue that the calling thread and the free threads of the pool work off
together. So a single task needs no change of thread, a sync makes progress however busy the pool is, and the number of
concurrent requests is limited over all syncs: by the pool plus the workers.

Threads: any may call `run`.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

Task = Callable[[], None]


class Fanout:
    """Runs tasks concurrently; `helpers` is the size of the pool, 0 for none."""

    def __init__(self, helpers: int) -> None:
        self._helpers = helpers
        self._pool = ThreadPoolExecutor(helpers, thread_name_prefix="writer") if helpers > 0 else None

    def run(self, tasks: Sequence[Task]) -> None:
        """Runs all tasks and returns when all have ended. Raises what the first failed one raised."""
        pile = deque(tasks)
        helpers = self._call_helpers(pile, len(tasks) - 1)
        try:
            _work_off(pile)
        finally:
            # A helper that has not begun has nothing left to do and is cancelled.
            begun = [helper for helper in helpers if not helper.cancel()]
            wait(begun)
        for helper in begun:
            helper.result()

    def stop(self) -> None:
        """Ends the pool's threads as soon as they are free. Later calls of `run` use the calling thread alone."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _call_helpers(self, pile: deque[Task], wanted: int) -> list[Future[None]]:
        pool = self._pool
        if pool is None:
            return []
        called: list[Future[None]] = []
        # RuntimeError: the pool was stopped. The caller and the helpers that have begun do all tasks.
        with contextlib.suppress(RuntimeError):
            for _ in range(min(wanted, self._helpers)):
                # With a copy of the caller's context, so that its log lines carry the same reconcile_id.
                called.append(pool.submit(contextvars.copy_context().run, _work_off, pile))  # noqa: PERF401 -- kept if one fails
        return called


def _work_off(pile: deque[Task]) -> None:
    while True:
        try:
            task = pile.popleft()
        except IndexError:
            return
        task()
