"""The admission loop: which gangs start now, and on which nodes. One thread, level-triggered.

Theory of operation. Other threads mark gangs in state/shared.py. A pass takes all marked gangs and does six things:

    outcomes handle how the writes of earlier passes ended
    process  derive each gang's status from its pods and spec (status/lifecycle.py): bound, released or suspended;
             update the reservations of admitted and bound gangs (reservations.py)
    resize   plan resize requests to running gangs, and follow specs that were resized (resizing.py); ask gangs of
             lower priority to leave their nodes (preemption.py)
    decide   go through the queue in order (queue.py); gangs that fit are reserved in the view in the same step
    submit   hand the new statuses to the writer (status/writer.py); an admission is one status update, so no gang is
             half admitted

A pass computes and never waits for a request, since a single write may take the API server many seconds. While a
write of a gang is under way, the gang is neither processed nor written, and what is reserved for it stays reserved.
When the write has ended, the writer wakes the loop, which handles the outcome and processes the gang again. A waiting
gang stays in the queue meanwhile, because it holds capacity back from those behind it. If it fits before its report is
written, it leaves the queue and its capacity is reserved, as for an admission; it is decided on again, and admitted,
after the report.

If a member's node is deleted, full, or rejected by kube-scheduler's own filters, the member is reassigned to another
node in the same attempt, if one fits.

kube-scheduler may filter a pod before its member has a place, or while it still has the old one. It does not retry such
a pod for minutes, so that an annotation on each pod that it reports as unschedulable makes it retry (`_pods_to_retry`).

If a write fails, its reservation is released and the gang is processed again: the Gangs' statuses and the pods are the
only state. If it is unknown whether an admission was written, its reservation is kept until the Gang was read. After a
restart the reservations of admitted gangs are restored before the first decision.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from tfjob_controller.api.common.cluster import PriorityClass, ScheduledPod
from tfjob_controller.api.gang import ADMITTED, BOUND, WAITING, Gang, GangStatus, must_leave, placed_nodes
from tfjob_controller.gangscheduler.admission.preemption import PreemptionRequests
from tfjob_controller.gangscheduler.admission.queue import AdmissionQueue, NodeRequests
from tfjob_controller.gangscheduler.admission.reservations import Reservations
from tfjob_controller.gangscheduler.admission.resizing import ResizeRequests
from tfjob_controller.gangscheduler.binding.evictor import Eviction
from tfjob_controller.gangscheduler.permit.permit import Permit
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.gangscheduler.status import lifecycle
from tfjob_controller.gangscheduler.status.lifecycle import GangState, pods_by_member, state_of
from tfjob_controller.gangscheduler.status.preempted import evictions, leaving_status
from tfjob_controller.gangscheduler.status.writer import StatusChange, StatusUpdate, StatusWriter
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.autoscaling.elasticgang import AutoscalingPolicy
from tfjob_controller.scheduling.decisions import MAX_BACKOFF_SECONDS, AdmissionPolicy, Decision
from tfjob_controller.scheduling.fairshare import equal_weight
from tfjob_controller.scheduling.nodefilter import node_filter_of
from tfjob_controller.scheduling.preemption import PreemptionPolicy
from tfjob_controller.scheduling.quota import NamespaceQuotas, QuotaLookup
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

# Backoff after a failed attempt. It doubles with each attempt and has jitter, so that two gangs do not keep colliding.
BACKOFF_SECONDS = 1.0
# Delay before a failed status write is repeated.
RETRY_SECONDS = 0.5
# After a pass the loop pauses for a multiple of the pass's computing time, within limits. The pods of a gang appear one
# by one, each causes the gang to be processed, and the bind calls need the interpreter too.
_PAUSE_FACTOR = 3.0
_MIN_PAUSE_SECONDS = 0.02
_MAX_PAUSE_SECONDS = 0.2
# Upper limit of a sleep, so that a missed wake-up only delays a gang.
_MAX_SLEEP_SECONDS = 30.0


@dataclass(slots=True)
class _Record:
    """What the loop remembers of one gang between two passes. It is forgotten with the Gang."""

    # The Gang's; None before it has been processed.
    uid: str | None = None
    # When it is processed next without a mark, in monotonic seconds.
    due: float | None = None
    # Reports whether an admission may or may not have been written. The reservation is kept until the Gang is read.
    is_uncertain: bool = False
    failures: int = 0
    # Attempts since the gang was bound that ended without any pod.
    empty_attempts: set[int] = field(default_factory=set)
    # The last attempt of which Permit knows the pods that existed when this process first saw it.
    noted_attempt: int | None = None
    # Monotonic seconds at which a bound gang was first seen without an unfinished pod; None while it has one.
    idle_since: float | None = None
    # By uid, the node that a pod was last woken for.
    woken: dict[str, str] = field(default_factory=dict)


class AdmissionLoop:
    """Runs the passes that the module's docstring describes."""

    def __init__(
        self,
        state: SharedState,
        gangs: Store[Gang],
        quotas_of: QuotaLookup,
        writer: StatusWriter,
        permit: Permit,
        clock: Clock,
        *,
        policy: AdmissionPolicy,
        scale_policy: AutoscalingPolicy,
        preemption_policy: PreemptionPolicy | None = None,
        priority_classes: Callable[[], Sequence[PriorityClass]] = tuple,
        weight_of: Callable[[str], float] = equal_weight,
        node_requests: NodeRequests | None = None,
        evict: Callable[[Sequence[Eviction]], None] = lambda evictions: None,
        rng: random.Random | None = None,
    ) -> None:
        self._state = state
        self._gangs = gangs
        self._writer = writer
        self._permit = permit
        self._clock = clock
        self._evict = evict
        self._quotas = NamespaceQuotas(quotas_of, state.pod_usage.of)
        self._reservations = Reservations(state.view, self._quotas, permit)
        self._resizing = ResizeRequests(
            state.view, gangs, self._quotas, state.observed_requests, scale_policy, clock, self._wake
        )
        self._preemption = PreemptionRequests(
            state.view,
            gangs,
            self._resizing,
            preemption_policy,
            priority_classes,
            state.admitted_classes,
            clock,
            self._wake,
        )
        self._queue = AdmissionQueue(
            state.view,
            policy,
            self._quotas,
            clock,
            self._wake,
            weight_of,
            node_requests,
            self._preemption.note_of,
        )
        self._rng = rng or random.Random()  # noqa: S311 -- spreads load, guards nothing
        # Only the loop's thread uses the following fields.
        self._records: defaultdict[str, _Record] = defaultdict(_Record)
        # A heap of the records' `due`, so that a pass does not look at thousands of gangs to take those that are due.
        # An entry that differs from its record is obsolete.
        self._alarms: list[tuple[float, str]] = []
        # The gangs that the next pass processes without a mark, an index for the same reason: a member needs another
        # node and fits on none, or the gang was to be processed while a write of it was under way.
        self._pending: set[str] = set()
        # Pods to wake after a pass, with their nodes and gangs.
        self._pods_to_wake: list[tuple[ScheduledPod, str, str]] = []
        # Evictions to submit after a pass.
        self._evictions: list[Eviction] = []
        self._computed_seconds = 0.0
        self._nodes_version = 0
        self._stop = threading.Event()
        self._thread = SupervisedThread("admission", self._run, stop=self._stop, clock=clock)

    # From other threads

    def start(self) -> None:
        """Start the loop. All handlers must have processed the initial state: reservations precede decisions."""
        for gang in self._gangs.list():
            self._state.enqueue(key_of(gang))
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        self._stop.set()
        self._state.wake()
        return self._thread.join(timeout_seconds)

    @property
    def restarts(self) -> int:
        return self._thread.restarts

    @property
    def decisions(self) -> Sequence[Decision]:
        """The last pass's decisions on waiting gangs."""
        return self._queue.decisions

    # The loop

    def _run(self) -> None:
        while not self._stop.is_set():
            self._state.wait(self.sleep_seconds())
            self.run_once()
            self._clock.sleep(pause_seconds(self._computed_seconds), self._stop)

    def _wake(self, key: str, moment: float) -> None:
        """Process the gang at `moment`, in monotonic seconds, or earlier."""
        due = self._records[key].due
        if due is None or moment < due:
            self._set_due(key, moment)

    def _set_due(self, key: str, moment: float) -> None:
        """Process the gang at `moment`, in monotonic seconds, and not earlier unless it is marked."""
        self._records[key].due = moment
        heapq.heappush(self._alarms, (moment, key))

    def _next_due(self) -> float:
        """Returns the earliest moment at which a gang is due; infinity if none is. The gang is the heap's first."""
        while self._alarms:
            moment, key = self._alarms[0]
            record = self._records.get(key)
            if record is not None and record.due == moment:
                return moment
            heapq.heappop(self._alarms)
        return float("inf")

    def _take_due(self) -> set[str]:
        """Take the gangs that are due."""
        now = self._clock.monotonic()
        due = set[str]()
        while self._next_due() <= now:
            _, key = heapq.heappop(self._alarms)
            self._records[key].due = None
            due.add(key)
        return due

    def sleep_seconds(self) -> float:
        """Seconds that the loop may sleep if no gang is marked."""
        return max(0.0, min(self._next_due() - self._clock.monotonic(), _MAX_SLEEP_SECONDS))

    def run_once(self) -> None:
        """Run one pass: outcomes, process, resize, decide, submit."""
        self.handle_outcomes()
        now = self._clock.now()
        keys = self._keys_to_process()
        begin = self._clock.monotonic()
        self._evaluate_filters(keys)
        with self._state.lock:
            self._quotas.refresh()
            updates = [update for key in sorted(keys) for update in self._process(key, now)]
            plan = self._preemption.plan(self._queue.ordered, now)
            self._state.nominated = plan.nominated
            busy = self._writer.under_way() | {key_of(update.gang) for update in updates}
            updates += self._preemption.updates(plan, busy, now)
            updates += self._queue.decide(now, plan.nominated, preemptor=plan.preemption.preemptor)
            self._computed_seconds = self._clock.monotonic() - begin
        for update in updates:
            self._submit(update)
        self._evict(self._evictions)
        self._evictions = []
        while self._pods_to_wake:
            self._writer.wake_pod(*self._pods_to_wake.pop())

    def _keys_to_process(self) -> set[str]:
        """Take the gangs of which no write is under way and whose status is known; read those of unknown status."""
        marked = self._state.take() | self._take_due() | self._pending
        uncertain = {key for key in marked if self._records[key].is_uncertain}
        for key in uncertain:
            self._writer.read(key)
        keys = {key for key in marked - uncertain if self._writer.withdraw(key)}
        self._pending = (self._pending | marked - keys) - uncertain
        return keys

    def _submit(self, update: StatusUpdate) -> None:
        key = key_of(update.gang)
        if not self._writer.withdraw(key):
            # The gang's last report is being written. When that has ended, the gang is processed again; until then
            # what was reserved for it stays reserved.
            return
        if update.is_admission:
            # Rejections belong to the previous attempt.
            self._state.rejected_nodes.forget(key)
            # Permit must know the placement before the status is visible: the first bind call may follow at once.
            self._permit.set_placement(key, update.status.attempt, placed_nodes(update.status))
        self._writer.submit(update)

    def _evaluate_filters(self, keys: Iterable[str]) -> None:
        """Evaluate the filters of waiting gangs, which takes long for large ones, before the view's lock is taken.

        These are the filters of marked gangs and, if nodes have changed, those that were evaluated before.
        """
        view = self._state.view
        nodes = [info.node for info in list(view.node_infos.values())]
        gangs = [gang for key in keys if (gang := self._gangs.get(key)) is not None]
        filters = [
            node_filter_of(member)
            for gang in gangs
            if state_of(gang) is GangState.QUEUED
            for member in gang.spec.members
        ]
        if self._nodes_version != view.nodes_version:
            self._nodes_version = view.nodes_version
            filters += view.verdicts.filters
        for node_filter in filters:
            view.verdicts.evaluate(node_filter, nodes)

    def _process(self, key: str, now: datetime) -> Sequence[StatusUpdate]:
        gang = self._gangs.get(key)
        self._pending.discard(key)
        self._queue.remove(key)
        self._resizing.forget(key)
        self._preemption.forget(key)
        is_recreated = gang is not None and self._records[key].uid not in (None, gang.metadata.uid)
        if (gang is None or is_recreated or _must_end(gang)) and not self._permit.reject(key):
            # Bindings are in flight. Permit reports when they end; until then the gang keeps its reservations.
            return ()
        if gang is None or is_recreated:
            self._forget(key)
        if gang is None:
            return ()
        record = self._records[key]
        record.uid = gang.metadata.uid
        all_pods = self._state.gang_pods.of(key)
        pods = pods_by_member(gang, all_pods)
        if self._state.is_attempt_rejected(gang) and gang.status.phase == ADMITTED and lifecycle.is_wanted(gang):
            return (self._requeue(record, gang, pods, now),)
        self._preemption.update(gang, now)
        if must_leave(gang) and lifecycle.is_wanted(gang):
            return self._leave(gang, pods, now)
        idle = self._idle_seconds(record, gang, pods)
        has_succeeded = self._reservations.has_succeeded(gang)
        status = lifecycle.observed_status(gang, pods, idle, now, any_succeeded=has_succeeded)
        if status is not None and status.phase == BOUND:
            self._preemption.note_bound(gang)
            return (StatusUpdate(gang, status, StatusChange.BOUND),)
        if status is not None:
            return (StatusUpdate(gang, status, StatusChange.RELEASED),)
        gang_state = state_of(gang)
        if gang_state is GangState.PLACED:
            gang = self._state.observed_requests.apply(key, gang)
            self._resizing.update(gang, pods, all_pods, has_succeeded, now)
            return self._place(record, gang, pods)
        self._reservations.unreserve(key)
        if gang_state is GangState.QUEUED:
            self._add_to_queue(key, lifecycle.with_attempt_of_pods(gang, all_pods))
        return ()

    def _leave(self, gang: Gang, pods: Mapping[str, ScheduledPod], now: datetime) -> Sequence[StatusUpdate]:
        """Follow a gang that is being preempted. Its capacity stays reserved until all of its pods are gone."""
        self._reservations.reserve(self._state.observed_requests.apply(key_of(gang), gang), pods)
        moment = self._clock.monotonic()
        self._evictions += [
            Eviction(key_of(pod), pod.metadata.uid, grace, moment + seconds)
            for pod, grace, seconds in evictions(gang, pods, now)
        ]
        status = leaving_status(gang, pods, now)
        if status is None:
            return ()
        if status.phase == WAITING:
            return (StatusUpdate(gang, status, StatusChange.PREEMPTED),)
        if must_leave(replace(gang, status=status)):
            return (StatusUpdate(gang, status, StatusChange.PREEMPTION_ENFORCED),)
        self._preemption.note_stayed(gang)
        return (StatusUpdate(gang, status, StatusChange.PREEMPTION_NOT_FOLLOWED),)

    def _add_to_queue(self, key: str, gang: Gang) -> None:
        remaining = self._state.observed_requests.expire(key, gang)
        if remaining is not None:
            self._wake(key, self._clock.monotonic() + remaining)
        self._queue.add(self._state.observed_requests.apply(key, gang))

    def _place(self, record: _Record, observed: Gang, pods: Mapping[str, ScheduledPod]) -> Sequence[StatusUpdate]:
        """Update a placed gang's reservations and reassign members; returns an update if the placement changes."""
        key = key_of(observed)
        gang = self._reservations.with_reassignments(
            lifecycle.with_observed_nodes(lifecycle.without_removed_members(observed), pods)
        )
        if not self._reservations.reserve(gang, pods):
            self._wake(key, self._clock.monotonic() + RETRY_SECONDS)
        self._note_existing_pods(record, gang.status, pods)
        rejected = self._state.rejected_nodes.by_member(key)
        nodes, is_any_unplaceable = self._reservations.reassign(
            gang, pods, rejected, observed.metadata.resource_version
        )
        if is_any_unplaceable:
            self._pending.add(key)
        status = lifecycle.reassigned_status(gang, nodes)
        before = placed_nodes(observed.status)
        if status.placement == observed.status.placement:
            self._pods_to_wake += [(pod, node, key) for pod, node in _pods_to_retry(record, before, pods)]
            return ()
        # Once the status is written, the gang is processed again, and its pods are woken.
        is_reassigned = any(before.get(member) != node for member, node in placed_nodes(status).items())
        return (StatusUpdate(observed, status, StatusChange.REASSIGNED if is_reassigned else StatusChange.RESIZED),)

    def _note_existing_pods(self, record: _Record, status: GangStatus, pods: Mapping[str, ScheduledPod]) -> None:
        """Report the pods that exist when an attempt is processed first. The informer's handler reports later ones."""
        if status.phase == ADMITTED and record.noted_attempt != status.attempt:
            record.noted_attempt = status.attempt
            for pod in pods.values():
                self._state.note_created(pod, self._permit.note_progress)

    def _idle_seconds(self, record: _Record, gang: Gang, pods: Mapping[str, ScheduledPod]) -> float:
        """Seconds for which a bound gang has had no unfinished pod."""
        if gang.status.phase != BOUND or any(lifecycle.is_unfinished(pod) for pod in pods.values()):
            record.idle_since = None
            return 0.0
        now = self._clock.monotonic()
        if record.idle_since is None:
            record.idle_since = now
        self._wake(key_of(gang), record.idle_since + lifecycle.replacement_seconds(gang, pods))
        return now - record.idle_since

    def _forget(self, key: str) -> None:
        """Forget a gang that was deleted or recreated."""
        self._reservations.unreserve(key)
        self._state.forget(key)
        self._queue.forget(key)
        del self._records[key]

    def _requeue(self, record: _Record, gang: Gang, pods: Mapping[str, ScheduledPod], now: datetime) -> StatusUpdate:
        """Return the gang to the queue, with exponential backoff."""
        cap = min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2.0 ** min(record.failures + 1, 16))
        bound = sum(lifecycle.is_bound(pod) for pod in pods.values())
        if not self._permit.has_progress(key_of(gang)):
            record.empty_attempts.add(gang.status.attempt)
        status = lifecycle.requeued_status(
            gang, bound, self._rng.uniform(cap / 2, cap), len(record.empty_attempts), now
        )
        return StatusUpdate(gang, status, StatusChange.REQUEUED)

    # Outcomes

    def handle_outcomes(self) -> None:
        """Handle how writes have ended. A pass begins with it."""
        for outcome in self._writer.outcomes():
            if outcome.update is None:
                self._note_read(outcome.key, outcome.error)
            elif outcome.error is None:
                self._note_written(outcome.update)
            else:
                self._note_failed(outcome.update, outcome.error)

    def _note_read(self, key: str, error: ApiError | None) -> None:
        if error is not None and not error.is_not_found:
            self._set_due(key, self._clock.monotonic() + RETRY_SECONDS)
            return
        self._records[key].is_uncertain = False
        self._state.enqueue(key)

    def _note_written(self, update: StatusUpdate) -> None:
        key = key_of(update.gang)
        self._queue.note_written(key)
        record = self._records[key]
        if update.change == StatusChange.BOUND:
            record.failures = 0
            record.empty_attempts.clear()
        if update.change == StatusChange.REQUEUED:
            record.failures += 1
        self._state.enqueue(key)

    def _note_failed(self, update: StatusUpdate, error: ApiError) -> None:
        """Release the reservation unless the write may have succeeded, and process the gang again after a delay."""
        key = key_of(update.gang)
        if update.is_admission and error.outcome_unknown:
            self._records[key].is_uncertain = True
        elif update.is_admission:
            with self._state.lock:
                self._reservations.unreserve(key)
            self._state.capacity_changed()
        retry_at = self._clock.monotonic() + max(RETRY_SECONDS, error.retry_after_seconds or 0.0)
        self._set_due(key, retry_at)
        self._queue.note_failed(key, retry_at)


def pause_seconds(computed_seconds: float) -> float:
    """Returns how long the loop pauses after a pass that computed for so long."""
    return min(max(_MIN_PAUSE_SECONDS, _PAUSE_FACTOR * computed_seconds), _MAX_PAUSE_SECONDS)


def _must_end(gang: Gang) -> bool:
    """Reports whether the gang's placement must end for a reason other than a rejected attempt."""
    return gang.status.phase in (ADMITTED, BOUND) and not (lifecycle.is_wanted(gang) and lifecycle.has_pods(gang))


def _pods_to_retry(
    record: _Record, nodes: Mapping[str, str], pods: Mapping[str, ScheduledPod]
) -> list[tuple[ScheduledPod, str]]:
    """Returns, with their nodes, the pods that kube-scheduler rejected and that were not woken for their node."""
    rejected = [
        (pod, node)
        for member, node in nodes.items()
        if (pod := pods.get(member)) is not None and lifecycle.is_unschedulable(pod)
    ]
    woken, record.woken = record.woken, {pod.metadata.uid: node for pod, node in rejected}
    return [(pod, node) for pod, node in rejected if woken.get(pod.metadata.uid) != node]
