"""Supervised threads.

A controller whose watch thread died looks healthy and does nothing. So the body of every long-lived thread runs under a
supervisor: an exception is logged and counted, and after a short pause the body runs again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import structlog

from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# Long enough that a body which always fails does not fill the log, and shorter than anything a user waits for.
RESTART_SECONDS = 1.0


class SupervisedThread:
    """Runs `body` until it returns; if it raises, it runs again after `RESTART_SECONDS`, unless `stop` is set.

    The body must check `stop`. The thread is a daemon, so that a call that cannot be interrupted (such as a connect)
    never keeps the process from ending; the owner still joins it.
    """

    def __init__(self, name: str, body: Callable[[], object], *, stop: threading.Event, clock: Clock) -> None:
        self._body = body
        self._stop = stop
        self._clock = clock
        self._restarts = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def name(self) -> str:
        return self._thread.name

    @property
    def restarts(self) -> int:
        """How often the body has raised."""
        return self._restarts

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end; returns False and logs a warning if the thread still runs then. True if never started."""
        if self._thread.ident is None:
            return True
        self._thread.join(max(0.0, timeout_seconds))
        if self._thread.is_alive():
            log.warning("thread still runs after stop", thread=self._thread.name)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._body()
                return
            except Exception:
                self._restarts += 1
                log.exception("thread died, restarting it", thread=self._thread.name, restarts=self._restarts)
            self._clock.sleep(RESTART_SECONDS, self._stop)


class SupervisedThreads:
    """Threads that are started and joined together."""

    def __init__(self, threads: Sequence[SupervisedThread], clock: Clock) -> None:
        self._threads = threads
        self._clock = clock

    def __len__(self) -> int:
        return len(self._threads)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end of all, within one timeout; returns False if one still runs then."""
        ends_at = self._clock.monotonic() + timeout_seconds
        ended = [thread.join(ends_at - self._clock.monotonic()) for thread in self._threads]
        return all(ended)

    def restarts(self) -> dict[str, int]:
        """How often each thread was restarted, by its name."""
        return {thread.name: thread.restarts for thread in self._threads}
