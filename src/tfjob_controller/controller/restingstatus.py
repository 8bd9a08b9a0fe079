"""A status that differs from the written one only in figures, and waits to be written.

Theory of operation. How many replicas are ready changes often, and nobody decides by it. So such a status rests for a
while, and goes along with the next change of substance if that comes first. Each further write of figures alone rests
twice as long, up to a cap: replicas that come one by one, for minutes, cost a few writes and not one each. A change of
substance starts over. Meanwhile decisions are made on what rests as if it were written, so that nothing which it
remembers is lost when the child that it was read from goes.

Threads: one job's, so one at a time.
"""

from __future__ import annotations

from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.trainer.status import StatusResult
from tfjob_controller.trainer.substance import is_minor
from tfjob_controller.trainer.work import PlainWork, Work

MINOR_DELAY_CAP_SECONDS = 8.0


class RestingStatus:
    """Of one job. `delay_seconds` is how long figures rest at first."""

    def __init__(self, delay_seconds: float) -> None:
        self._first_delay_seconds = self._delay_seconds = delay_seconds
        self._status: TrainingStatus | None = None
        # The written status that it follows on: once that is another, this one is out of date.
        self._follows: TrainingStatus | None = None
        self._since = 0.0

    def current(self, work: Work) -> Work:
        """The job with the status that rests, if one does."""
        if self._status is not None and self._follows != work.status:
            self._status = None
        if self._status is None:
            return work
        return PlainWork(work.metadata, self._status, work.ttl_seconds_after_finished)

    def rest_seconds(self, work: Work, result: StatusResult, now: float) -> float:
        """How much longer it can rest (`now` is monotonic): 0 for one of substance, or one that has rested."""
        if not is_minor(work.status, result):
            return 0.0
        if self._status is None:
            self._since = now
        self._status, self._follows = result.status, work.status
        return max(0.0, self._since + self._delay_seconds - now)

    def written(self, work: Work, result: StatusResult) -> None:
        """`result` was; `work` is the job as it was before."""
        self._status = None
        is_figures = is_minor(work.status, result)
        self._delay_seconds = (
            min(MINOR_DELAY_CAP_SECONDS, 2 * self._delay_seconds) if is_figures else self._first_delay_seconds
        )

    def drop(self) -> None:
        """There is nothing to write."""
        self._status = None
