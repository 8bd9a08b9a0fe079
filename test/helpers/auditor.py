"""The auditor of jobs (hack/audit/jobs) within a test's own process, so that the test can read its observations.

    with Auditor(api, namespace) as auditor:
        ...
        auditor.await_no_violations()   # once, at the end

It watches one namespace from outside and shares no code with the controller. As a process: helpers/auditorprocess.py.

Threads: one that processes the observations, besides those of the watches; all have ended after the block.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Self

from audit.flags import Signals
from audit.jobs import auditor
from audit.jobs.judge import Limits
from localcluster.api import Api

# The time that jobs and the garbage collector need; objects that remain after it are violations.
_SETTLE_SECONDS = 120.0


class Auditor:
    """See the module. Every kind has been listed when the block begins."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._signals = Signals()
        self._auditor = auditor.Auditor(api, auditor.paths_in(namespace), Limits(), _SETTLE_SECONDS, self._signals)
        self._thread = threading.Thread(target=self._auditor.watch, name="auditor", daemon=True)
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self._auditor)
        self._open.callback(self._end_watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def count(self) -> int:
        """The number of versions that were observed so far."""
        return self._auditor.count

    @property
    def gaps(self) -> int:
        """The number of watches whose version the server had compacted away."""
        return self._auditor.gaps

    def await_no_violations(self) -> None:
        """Waits for jobs and their clean-up; fails if violations remain."""
        self._end_watch()
        found = self._auditor.report()["violations"]
        assert found == [], found

    def _end_watch(self) -> None:
        self._signals.stop.set()
        self._thread.join()
