"""Many small writes at the same time, over a pool that all syncs share.

Theory of operation. A sync that has to write fifty children would wait for fifty answers one after another. Instead its
tasks lie on a pile, and everybody who has time takes the next one: the calling thread itself, and as many threads of
the pool as are free. So one task costs no change of thread; a sync always moves on, however busy the pool is; and the
bound on requests under way holds over all syncs: pool plus workers.

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
        """Run all tasks and return when every one of them has ended; raises what the first failed one raised."""
        pile = deque(tasks)
        helpers = self._call_helpers(pile, len(tasks) - 1)
        try:
            _work_off(pile)
        finally:
            # One that has not begun would find nothing to do, and a cancelled one is not waited for.
            begun = [helper for helper in helpers if not helper.cancel()]
            wait(begun)
        for helper in begun:
            helper.result()

    def stop(self) -> None:
        """End the pool's threads as soon as they are free. Later calls of `run` do all by themselves."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _call_helpers(self, pile: deque[Task], wanted: int) -> list[Future[None]]:
        pool = self._pool
        if pool is None:
            return []
        called: list[Future[None]] = []
        # Stopped meanwhile: those who have been called, and the caller, do it all.
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
