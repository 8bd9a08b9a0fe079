"""Worker threads: they take keys from the queue and sync them.

Theory of operation. A worker takes a key, calls `sync(key)` and handles the outcome: it resets the key's failures,
schedules the next sync, or retries at the rate limiter's pace with the same priority. An exception counts as a failure
of that key alone. A worker that dies nevertheless returns its key first and is restarted (util.threads).

On stop, workers finish their current sync and take no other key. Whatever is still queued is found again by the
initial list of the next process.

Every log line of a sync carries `key` and `reconcile_id`, and so do its requests (kube.trace). At debug level the first
line shows what triggered the sync.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from tfjob_controller.controller.handlers import HIGH, NO_TRIGGER_LOG, NORMAL, TriggerLog
from tfjob_controller.controller.outcome import Done, NotFound, Outcome, RequeueAfter, Retry, TerminalFailure
from tfjob_controller.controller.reporter import SyncObserver
from tfjob_controller.kube.trace import new_trace
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
from tfjob_controller.kube.workqueue.workers import QueueWorkers
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)


class Workers:
    """`count` threads for one queue. `name` is the controller's, in metrics and thread names."""

    def __init__(
        self,
        name: str,
        queue: RateLimitingQueue[str],
        sync: Callable[[str], Outcome],
        *,
        count: int,
        clock: Clock,
        observer: SyncObserver,
        triggers: TriggerLog = NO_TRIGGER_LOG,
    ) -> None:
        self._name = name
        self._queue = queue
        self._sync = sync
        self._clock = clock
        self._observer = observer
        self._triggers = triggers
        self._workers = QueueWorkers(f"{name}-worker", queue, self._process, count=count, clock=clock)

    def start(self) -> None:
        """Starts the threads; called once."""
        self._observer.workers_started(self._name, len(self._workers))
        self._workers.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Takes no more keys and waits for running syncs; False if one still runs after `timeout_seconds`."""
        return self._workers.stop(timeout_seconds)

    def restarts(self) -> dict[str, int]:
        """How often each thread was restarted."""
        return self._workers.restarts()

    def _process(self, key: str) -> None:
        begin = self._clock.monotonic()
        self._observer.sync_started(self._name)
        result = "panic"
        try:
            with new_trace(key):
                result = self._sync_and_handle(key)
        finally:
            self._observer.sync_finished(self._name, result, self._clock.monotonic() - begin)

    def _sync_and_handle(self, key: str) -> str:
        self._triggers.log_triggers(key)
        try:
            outcome = self._sync(key)
        except Exception:
            # A bug in the sync of this object. Other keys are not affected, and the log has the traceback.
            log.exception("sync failed")
            self._queue.add_rate_limited(key, self._queue.priority_of(key))
            return "panic"
        return self._handle(key, outcome)

    def _handle(self, key: str, outcome: Outcome) -> str:
        if isinstance(outcome, Retry):
            return self._retry(key, outcome)
        self._queue.forget(key)
        if isinstance(outcome, RequeueAfter):
            # Without a delay there is more to do at once, such as a clean-up that waited for its status write.
            self._queue.add_after(key, outcome.seconds, NORMAL if outcome.seconds > 0 else HIGH)
            self._triggers.record_timer(key, outcome.seconds)
            return "requeue_after"
        if isinstance(outcome, TerminalFailure):
            log.warning("terminal error", error=outcome.message)
            return "terminal"
        if isinstance(outcome, NotFound):
            # The job is gone, and its deadline, possibly weeks from now, would stay queued. A new job of that name adds
            # the key by its own event.
            self._queue.cancel(key)
            return "success"
        assert isinstance(outcome, Done)  # noqa: S101 -- for mypy: the only one that is left
        return "success"

    def _retry(self, key: str, outcome: Retry) -> str:
        failures, priority = self._queue.num_requeues(key), self._queue.priority_of(key)
        # Only the first of repeated failures is logged as a warning.
        log_failure = log.warning if failures == 0 else log.debug
        log_failure("sync will be retried", error=outcome.message, failures=failures + 1)
        self._queue.add_rate_limited(key, priority, min_seconds=outcome.after_seconds)
        if outcome.wake_after_seconds is not None:
            # The queue keeps the earlier of both times.
            self._queue.add_after(key, outcome.wake_after_seconds)
        return "error" if outcome.is_error else "requeue"
