"""The waiting gangs: which of them are admitted now, and what the statuses of the others report (scheduling/decisions).

A status is written only if it changed; a mere change of figures, such as the position or what is left of a quota, at
most every `figures_seconds`, and not before the retry time of a failed write. Others may change these figures at will,
and each write sends the whole Gang to all watchers.

`waiting_gangs` and `partly_bound_seconds` show a scrape how long gangs wait. They count nothing as it happens, but read
Gangs, pods and the last decisions, so that a scrape also shows what the loop should have done and did not.

Threads: the admission loop's, `decide` under the view's lock; any thread for the functions that a scrape calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.gang import ADMITTED, WAITING, Gang, GangStatus, ProvisioningRequestReference, placed_nodes
from tfjob_controller.gangscheduler.status import lifecycle
from tfjob_controller.gangscheduler.status.lifecycle import is_bound_member, pods_by_member
from tfjob_controller.gangscheduler.status.writer import StatusChange, StatusUpdate
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import (
    BACKING_OFF,
    HELD_BACK,
    AdmissionDecider,
    AdmissionPolicy,
    Admit,
    Decision,
    NominatedNodes,
    Pending,
    QueuedGang,
    Unschedulable,
    backoff_seconds,
    queue_order,
)
from tfjob_controller.scheduling.fairshare import NamespaceShares, equal_weight
from tfjob_controller.scheduling.quota import NamespaceQuotas
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import parse_time_or_none

# Whether a waiting gang fits now. Held: the capacity is kept for a gang ahead of it. Unknown: no pass has decided.
FITS = YES, HELD, NO, UNKNOWN = "yes", "held", "no", "unknown"
PREEMPTING = "preempts gangs of lower priority: waits until their pods are deleted"
# Figures are informational and may lag by some seconds; by more for a Gang of more members, terms and tolerations than
# jobs have.
FIGURES_SECONDS = 5.0
_ORDINARY_ENTRIES = 50
_FIGURE = re.compile(r"\d[\d.]*[A-Za-z]*")


class NodeRequests(Protocol):
    """The requests to a node autoscaler (provisioning/provisioner.py), which read the decisions. Any thread."""

    def note_of(self, key: str) -> str:
        """Returns what to add to the message of a waiting gang; empty if nothing is requested for it."""

    def granted(self, key: str) -> ProvisioningRequestReference | None:
        """Returns the request by which nodes were provided for a gang, if any."""


@dataclass(slots=True)
class _Writes:
    """When a gang's status was written last, and until when a failed write is not repeated. Times are monotonic."""

    written_at: float = 0.0
    blocked_until: float = 0.0


class AdmissionQueue:
    """Holds the waiting gangs. `wake(key, moment)` schedules a gang, in monotonic seconds.

    `note_of` returns what to add to the message of a waiting gang.
    """

    def __init__(
        self,
        view: ClusterView,
        policy: AdmissionPolicy,
        quotas: NamespaceQuotas,
        clock: Clock,
        wake: Callable[[str, float], None],
        weight_of: Callable[[str], float] = equal_weight,
        node_requests: NodeRequests | None = None,
        note_of: Callable[[str], str] = lambda key: "",
    ) -> None:
        # The last pass's; replaced as a whole, so that any thread may read it.
        self.decisions: Sequence[Decision] = ()
        shares = NamespaceShares(view, weight_of) if policy.is_fair else None
        self._decider = AdmissionDecider(view, policy, quotas, shares)
        self._clock = clock
        self._wake = wake
        self._node_requests = node_requests
        self._note_of = note_of
        self._gangs: dict[str, Gang] = {}
        self._writes: dict[str, _Writes] = {}

    def add(self, gang: Gang) -> None:
        """Add or replace a waiting gang."""
        self._gangs[key_of(gang)] = gang

    def remove(self, key: str) -> None:
        """Remove a gang that does not wait, or that is about to be processed."""
        self._gangs.pop(key, None)

    def forget(self, key: str) -> None:
        """Forget a deleted gang."""
        self._gangs.pop(key, None)
        self._writes.pop(key, None)

    def note_written(self, key: str) -> None:
        """Record that the gang's status was written."""
        self._writes[key] = _Writes(self._clock.monotonic())

    def note_failed(self, key: str, until: float) -> None:
        """Record that a write failed, and is not to be repeated before `until`."""
        self._writes.setdefault(key, _Writes()).blocked_until = until

    def ordered(self) -> Sequence[QueuedGang]:
        """Returns the waiting gangs in queue order, without those that wait for quota: no gang shrinks for them."""
        over_quota = {
            decision.gang_key for decision in self.decisions if isinstance(decision, Pending) and decision.is_over_quota
        }
        return self._decider.ordered(gang for key, gang in self._gangs.items() if key not in over_quota)

    def decide(
        self, now: datetime, nominated: NominatedNodes | None = None, *, preemptor: str = ""
    ) -> list[StatusUpdate]:
        """Decide on all waiting gangs in order. Gangs that fit are reserved in the view and leave the queue.

        `nominated` are nodes whose freed capacity is kept for one of them, and `preemptor` is the gang that others
        leave their nodes for.
        """
        if not self._gangs:
            self.decisions = ()
            return []
        self.decisions = decisions = self._decider.decide(list(self._gangs.values()), now, nominated)
        updates = [self._update(decision, now, decision.gang_key == preemptor) for decision in decisions]
        self._wake_after_backoff(now)
        return [update for update in updates if update is not None]

    def _update(self, decision: Decision, now: datetime, preempts: bool) -> StatusUpdate | None:
        gang = self._gangs[decision.gang_key]
        if isinstance(decision, Admit):
            del self._gangs[decision.gang_key]
            request = self._node_requests.granted(decision.gang_key) if self._node_requests is not None else None
            status = lifecycle.admitted_status(gang, decision.placement.node_of, now, request)
            return StatusUpdate(gang, status, StatusChange.ADMITTED)
        if isinstance(decision, Unschedulable):
            message = self._with_note(gang, decision.message)
            status = lifecycle.unschedulable_status(gang, decision.reason, message, now)
            change = StatusChange.UNSCHEDULABLE
        else:
            # The outcome of the last attempt is more useful than the note that the gang backs off.
            is_backing_off = decision.message == BACKING_OFF
            message = gang.status.message if is_backing_off else self._with_note(gang, decision.message)
            message = PREEMPTING if preempts else message
            status = lifecycle.waiting_status(
                gang, decision.position, decision.missing, message, now, preempts=preempts
            )
            change = StatusChange.WAITING
        if status == gang.status or self._is_deferred(gang, status):
            return None
        return StatusUpdate(gang, status, change)

    def _with_note(self, gang: Gang, message: str) -> str:
        """Returns the message with what the node autoscaler does for the gang, and why it preempts nobody."""
        key = key_of(gang)
        notes = [self._node_requests.note_of(key) if self._node_requests is not None else "", self._note_of(key)]
        return "; ".join([message, *filter(None, notes)])

    def _is_deferred(self, gang: Gang, status: GangStatus) -> bool:
        """Reports whether a write has to wait: for a retry, or because only figures changed since a recent one."""
        key, now = key_of(gang), self._clock.monotonic()
        writes = self._writes.get(key, _Writes())
        due = writes.blocked_until
        if due <= now and _without_figures(status) == _without_figures(gang.status):
            due = writes.written_at + figures_seconds(gang)
        if due <= now:
            return False
        self._wake(key, due)
        return True

    def _wake_after_backoff(self, now: datetime) -> None:
        """Schedule gangs for the end of their backoff."""
        for key, gang in self._gangs.items():
            left = backoff_seconds(gang, now)
            if left:
                self._wake(key, self._clock.monotonic() + left)


def figures_seconds(gang: Gang) -> float:
    """Returns how old the figures in a gang's status may become. It grows with the Gang, and so with a write's cost."""
    members = gang.spec.members
    terms = (term for member in members for term in (member.node_affinity or {}).get("nodeSelectorTerms") or ())
    entries = len(members) + sum(len(member.tolerations) for member in members) + sum(1 for _ in terms)
    return FIGURES_SECONDS * max(1.0, entries / _ORDINARY_ENTRIES)


def _without_figures(status: GangStatus) -> GangStatus:
    conditions = tuple(
        replace(condition, message=_FIGURE.sub("", condition.message)) for condition in status.conditions
    )
    message = _FIGURE.sub("", status.message)
    return replace(status, position=0, missing=(), message=message, conditions=conditions)


def waiting_gangs(gangs: Iterable[Gang], decisions: Iterable[Decision], now: datetime) -> Iterator[tuple[str, float]]:
    """Yields for each waiting gang one of `FITS` and the seconds that it has waited."""
    known = {decision.gang_key: _fits(decision) for decision in decisions}
    waiting = (gang for gang in gangs if gang.status.phase in ("", WAITING) and not gang.metadata.deletion_timestamp)
    for queued in queue_order(waiting):
        yield known.get(queued.key, UNKNOWN), queued.waiting_seconds(now)


def partly_bound_seconds(
    gangs: Iterable[Gang], pods_of: Callable[[Gang], Iterable[ScheduledPod]], now: datetime
) -> Iterator[float]:
    """Yields the seconds since admission of each gang of which some members are bound and others are not."""
    for gang in gangs:
        since = parse_time_or_none(gang.status.admitted_time)
        if gang.status.phase == ADMITTED and since is not None and _is_partly_bound(gang, pods_of(gang)):
            yield max((now - since).total_seconds(), 0.0)


def _fits(decision: Decision) -> str:
    if isinstance(decision, Admit):
        return YES
    if isinstance(decision, Unschedulable) or not decision.may_fit:
        return NO
    return HELD if decision.message == HELD_BACK else YES


def _is_partly_bound(gang: Gang, pods: Iterable[ScheduledPod]) -> bool:
    members = pods_by_member(gang, pods)
    return len({is_bound_member(members, member) for member in placed_nodes(gang.status)}) > 1
