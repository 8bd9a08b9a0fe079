"""The gangs that wait for room: who of them starts now, and what the others are told. See `scheduling/decisions`.

An unchanged answer is not written again, a mere place in the queue at most every `POSITION_SECONDS`, and what could not
be written not before its time. Threads: the admission loop's; `decide` under its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from tfjob_controller.api.gang import Gang, GangStatus
from tfjob_controller.gangscheduler.status import lifecycle
from tfjob_controller.gangscheduler.status.writer import StatusChange, StatusUpdate
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import (
    AdmissionDecider,
    AdmissionPolicy,
    Admit,
    Decision,
    Pending,
    Unschedulable,
)
from tfjob_controller.scheduling.messages import BACKING_OFF
from tfjob_controller.scheduling.queue import NominatedNodes, QueuedGang, backoff_seconds, queue_order
from tfjob_controller.util.clock import Clock

# A place in the queue is for people: it need not be right to the second.
POSITION_SECONDS = 5.0


class AdmissionQueue:
    """See the module. `wake` is told which gang to look at again, and when on the monotonic scale."""

    def __init__(
        self, view: ClusterView, policy: AdmissionPolicy, clock: Clock, wake: Callable[[str, float], None]
    ) -> None:
        # Of the last pass; replaced as a whole, so that any thread may read it.
        self.verdicts: Sequence[Decision] = ()
        self._decider = AdmissionDecider(view, policy)
        self._clock = clock
        self._wake = wake
        self._gangs: dict[str, Gang] = {}
        self._written_at: dict[str, float] = {}
        self._blocked_until: dict[str, float] = {}

    def put(self, gang: Gang) -> None:
        """It waits, as it is now."""
        self._gangs[key_of(gang)] = gang

    def remove(self, key: str) -> None:
        """It does not wait, or has to be looked at first."""
        self._gangs.pop(key, None)

    def forget(self, key: str) -> None:
        """It is gone."""
        for memory in (self._gangs, self._written_at, self._blocked_until):
            memory.pop(key, None)

    def written(self, key: str) -> None:
        """Its status was written."""
        self._written_at[key] = self._clock.monotonic()
        self._blocked_until.pop(key, None)

    def not_written(self, key: str, until: float) -> None:
        """Its status could not be written, and should not be tried again before then."""
        self._blocked_until[key] = until

    def queue(self) -> Sequence[QueuedGang]:
        """Who waits, in order."""
        return queue_order(self._gangs.values())

    def decide(self, now: datetime, kept: NominatedNodes | None = None) -> list[StatusUpdate]:
        """The line, in order; those who fit are reserved in the view from here on, and wait no more.

        `kept`: nodes that are for one of them only.
        """
        if not self._gangs:
            self.verdicts = ()
            return []
        self.verdicts = verdicts = self._decider.decide(list(self._gangs.values()), now, kept)
        updates = [self._update(verdict, now) for verdict in verdicts]
        self._wake_for_rests(now)
        return [update for update in updates if update is not None]

    def _update(self, verdict: Decision, now: datetime) -> StatusUpdate | None:
        gang = self._gangs[verdict.gang_key]
        if isinstance(verdict, Admit):
            del self._gangs[verdict.gang_key]
            return StatusUpdate(
                gang,
                lifecycle.admitted_status(gang, verdict.placement.node_of, now),
                StatusChange.ADMITTED,
            )
        return self._waiting_update(gang, verdict, now)

    def _waiting_update(self, gang: Gang, verdict: Pending | Unschedulable, now: datetime) -> StatusUpdate | None:
        if isinstance(verdict, Unschedulable):
            said = replace(gang.status, position=0, missing=(), message=verdict.message)
            status = lifecycle.unschedulable_status(gang, said, now, reason=verdict.reason)
            change = StatusChange.UNSCHEDULABLE
        else:
            # What came of the last attempt is worth more than that the gang rests from it.
            message = gang.status.message if verdict.message == BACKING_OFF else verdict.message
            said = replace(gang.status, position=verdict.position, missing=verdict.missing, message=message)
            status, change = lifecycle.waiting_status(gang, said, now), StatusChange.WAITING
        if status == gang.status or self._can_wait(gang, status):
            return None
        return StatusUpdate(gang, status, change)

    def _can_wait(self, gang: Gang, status: GangStatus) -> bool:
        """Whether it could not be written just now; or only the place in the queue is another, and was written then."""
        key, now = key_of(gang), self._clock.monotonic()
        due = self._blocked_until.get(key, 0.0)
        if due <= now and replace(status, position=gang.status.position) == gang.status:
            due = self._written_at.get(key, 0.0) + POSITION_SECONDS
        if due <= now:
            return False
        self._wake(key, due)
        return True

    def _wake_for_rests(self, now: datetime) -> None:
        """Gangs that rest after a failed attempt are looked at when that is over."""
        for key, gang in self._gangs.items():
            left = backoff_seconds(gang, now)
            if left:
                self._wake(key, self._clock.monotonic() + left)
