"""Keeps the history of the controller: the recorder with its place, its thread and its metrics.

What reads and writes it is loaded only with --history.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfjob_controller.controller.jobhistory import JobHistory
from tfjob_controller.controller.workers import Workers
from tfjob_controller.kinds.kindcontroller import Kind
from tfjob_controller.kube.requester import Requester
from tfjob_controller.options import RunOptions
from tfjob_controller.programs.program import StartError
from tfjob_controller.telemetry.metrics import Metrics
from tfjob_controller.util.clock import Clock

if TYPE_CHECKING:
    from tfjob_controller.programs.history.recorder import Recorder


class HistoryKeeping:
    """See the module. Raises StartError for a place that cannot be one."""

    def __init__(
        self, options: RunOptions, requester: Requester, metrics: Metrics, clock: Clock, *, gangs: bool
    ) -> None:
        self._recorder = _recorder(options, requester, metrics, clock, gangs=gangs)
        work = self._recorder.queue, self._recorder.sync
        self._workers = Workers("history", *work, count=1, clock=clock, observer=metrics.syncs)

    def of(self, kind: Kind, enqueue: Callable[[str], object]) -> JobHistory:
        return self._recorder.of(kind, enqueue)

    def start(self) -> None:
        self._workers.start()

    def stop(self, timeout_seconds: float) -> None:
        """A record in progress is finished, or given up after the timeout: the next process makes it again."""
        self._workers.stop(timeout_seconds)

    def statistics(self) -> Mapping[str, Any]:
        return self._recorder.statistics()

    def restarts(self) -> dict[str, int]:
        return self._workers.restarts()


def _recorder(options: RunOptions, requester: Requester, metrics: Metrics, clock: Clock, *, gangs: bool) -> Recorder:
    from tfjob_controller.client.history.filesystems import open_filesystem
    from tfjob_controller.client.history.store import HistoryStore
    from tfjob_controller.programs.history.namespaceindex import HistoryLimits
    from tfjob_controller.programs.history.recorder import Recorder
    from tfjob_controller.storage.errors import explain
    from tfjob_controller.storage.uris import Redactor

    redact = Redactor(os.environ)
    try:
        filesystem = open_filesystem(options.history, os.environ)
    except Exception as error:  # of the storage's libraries
        raise StartError(f"--history: {redact(str(explain(error, 'the history')))}") from None
    return Recorder(
        requester,
        HistoryStore(filesystem),
        HistoryLimits(options.history_jobs, options.history_bytes),
        clock,
        count=metrics.history_recorded,
        redact=redact,
        metrics=metrics.queues,
        gangs=gangs,
    )
