"""Threads that outlive their mistakes.

A controller whose watch thread died looks healthy and does nothing. So the body of every long-lived thread runs under
a supervisor: what it raises is logged and counted, and after a short rest the body runs again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# Long enough that a body which fails at once does not fill the log, short against anything a user waits for.
RESTART_SECONDS = 1.0


class SupervisedThread:
    """Runs `body` until it returns; one that raises is run again after `RESTART_SECONDS`, unless `stop` is set.

    `stop` is the caller's: the body must look at it. The thread is a daemon, so that a call which cannot be
    interrupted (a connect under way) never keeps the process from ending; whoever stops it still joins it.
    """

    def __init__(self, name: str, body: Callable[[], object], *, stop: threading.Event, clock: Clock) -> None:
        self._body = body
        self._stop = stop
        self._clock = clock
        self._restarts = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def restarts(self) -> int:
        """How often the body has died."""
        return self._restarts

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end; False, and a line in the log, if the thread still runs then. Never started is ended."""
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
                log.exception("thread died, starting it again", thread=self._thread.name, restarts=self._restarts)
            self._clock.sleep(RESTART_SECONDS, self._stop)
