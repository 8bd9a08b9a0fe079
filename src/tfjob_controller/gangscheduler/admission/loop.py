"""The admission loop: which gangs start now, and where. One thread, level-triggered.

Theory of operation. The state (state.py) has the view of the cluster, and says which gangs to look at. The loop takes
all of them at once:

    settle   what pods and spec say of each gang (lifecycle.py): bound, released, suspended, gone;
             those that are placed hold their room (reservations.py)
    resize   gangs that run: what their owners are asked for, and what they have done (resizing.py)
    decide   the queue, in order, on the view (waiting.py): who fits is reserved there, in the same update
    write    the new statuses, at the same time; an admission is one status update, so there is no half-admitted gang

A member whose node is lost, full, or refused by kube-scheduler's own filters gets another one in the same attempt, if
there is one, and its pod an annotation, which makes kube-scheduler ask again.

A write that fails gives its reservation back, and the gang is looked at again: nothing is kept but what the Gangs say
and what pods take. After a restart Admitted gangs are reserved anew from their placements before anything is decided.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime

from tfjob_controller.api.cluster import ScheduledPod
from tfjob_controller.api.gang import ADMITTED, BOUND, Gang, GangStatus, placed_nodes
from tfjob_controller.gangscheduler.admission.queue import AdmissionQueue
from tfjob_controller.gangscheduler.admission.reservations import AttemptPermit, Reservations
from tfjob_controller.gangscheduler.admission.resizing import ResizeRequests
from tfjob_controller.gangscheduler.state.informers import BY_GANG
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.gangscheduler.status import lifecycle
from tfjob_controller.gangscheduler.status.lifecycle import GangState, pods_by_member, state_of
from tfjob_controller.gangscheduler.status.writer import StatusChange, StatusUpdate, StatusWriter
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import key_of, split_key
from tfjob_controller.scheduling.autoscaling.elasticgang import AutoscalingPolicy
from tfjob_controller.scheduling.decisions import AdmissionPolicy, Decision
from tfjob_controller.scheduling.queue import MAX_BACKOFF_SECONDS
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

# After an attempt that failed, doubled by each further one, and spread, so that two gangs do not meet again and again.
BACKOFF_SECONDS = 1.0
# A status that could not be written is tried again.
RETRY_SECONDS = 0.5
# After a pass the loop rests for so many times what it computed, and no longer than this: the pods of a large gang come
# one by one, each is a reason to look at all of it, and the interpreter is needed for the bind calls too.
_REST_FACTOR = 3.0
_LONGEST_REST_SECONDS = 0.05
# No sleep is longer: whatever was missed costs seconds, and does not stay so for ever.
_LONGEST_SLEEP_SECONDS = 30.0


class AdmissionLoop:
    """See the module."""

    def __init__(
        self,
        state: SharedState,
        gangs: Store[Gang],
        pods: Store[ScheduledPod],
        writer: StatusWriter,
        permit: AttemptPermit,
        clock: Clock,
        *,
        policy: AdmissionPolicy,
        scale_policy: AutoscalingPolicy | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._state = state
        self._gangs = gangs
        self._pods = pods
        self._writer = writer
        self._permit = permit
        self._clock = clock
        self._reservations = Reservations(state.view, permit)
        self._queue_of_waiting = AdmissionQueue(state.view, policy, clock, self._wake)
        self._resizing = ResizeRequests(
            state.view, gangs, state.observed_requests, scale_policy or AutoscalingPolicy(), clock, self._wake
        )
        self._rng = rng or random.Random()  # noqa: S311 -- spreads load, guards nothing
        # Only the loop's own thread touches what follows.
        self._uids: dict[str, str] = {}
        self._due: dict[str, float] = {}
        self._idle_since: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        # Placed gangs of which some members should have other nodes, and there was none: looked at in every pass.
        self._homeless: set[str] = set()
        # Members, by gang, that got another node before their pods were seen; and pods of such to be woken now.
        self._unseen: dict[str, set[str]] = {}
        self._late: list[tuple[ScheduledPod, Gang]] = []
        # Gangs of which nobody knows whether they were admitted: their reservations stand until they have been read.
        self._uncertain: set[str] = set()
        self._computed_seconds = 0.0
        self._stop = threading.Event()
        self._thread = SupervisedThread("admission", self._run, stop=self._stop, clock=clock)

    # From other threads

    def start(self) -> None:
        """After all handlers have been told the first state: reservations come before decisions."""
        for gang in self._gangs.list():
            self._state.enqueue(key_of(gang))
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        self._stop.set()
        self._state.capacity_changed()
        return self._thread.join(timeout_seconds)

    @property
    def restarts(self) -> int:
        return self._thread.restarts

    @property
    def verdicts(self) -> Sequence[Decision]:
        """On the gangs that waited in the last pass."""
        return self._queue_of_waiting.verdicts

    # The loop

    def _run(self) -> None:
        while not self._stop.is_set():
            self._state.wait(self.sleep_seconds())
            self.run_once()
            self._clock.sleep(min(_REST_FACTOR * self._computed_seconds, _LONGEST_REST_SECONDS), self._stop)

    def _take(self) -> set[str]:
        """The gangs to look at now."""
        told = self._state.take()
        now = self._clock.monotonic()
        due = {key for key, moment in self._due.items() if moment <= now}
        for key in due:
            del self._due[key]
        return told | due

    def _wake(self, key: str, moment: float) -> None:
        """Look at this gang then, at the latest; on the monotonic scale."""
        self._due[key] = min(moment, self._due.get(key, moment))

    def sleep_seconds(self) -> float:
        """How long the loop sleeps if nothing happens."""
        earliest = min(self._due.values(), default=float("inf"))
        return max(0.0, min(earliest - self._clock.monotonic(), _LONGEST_SLEEP_SECONDS))

    def run_once(self) -> None:
        """One pass over what is to be looked at now: settle, decide on the queue, write."""
        now = self._clock.now()
        keys = (self._take() | self._homeless) - self._read_uncertain()
        with self._state.lock:
            begin = self._clock.monotonic()
            updates = [update for key in sorted(keys) for update in self._settle(key, now)]
            plan = self._resizing.plan(self._queue_of_waiting.queue, now)
            self._state.kept = plan.nominated
            updates += self._resizing.updates(plan, {key_of(update.gang) for update in updates}, now)
            updates += self._queue_of_waiting.decide(now, plan.nominated)
            self._computed_seconds = self._clock.monotonic() - begin
        for update in updates:
            if update.is_admission:
                # What was refused in the last attempt; from here on it is this one.
                self._state.rejected_nodes.forget(key_of(update.gang))
                self._unseen.pop(key_of(update.gang), None)
                # Before the status can be read: the first bind call may come right after it.
                self._permit.set_placement(key_of(update.gang), update.status.attempt, placed_nodes(update.status))
        # Those who start come first: the others only want to know where they stand.
        self._write(
            [update for update in updates if update.is_admission]
            + [update for update in updates if not update.is_admission]
        )
        while self._late:
            self._writer.wake(*self._late.pop())

    def _read_uncertain(self) -> set[str]:
        """Read the gangs whose admission may or may not have been written; those that are still uncertain."""
        for key in list(self._uncertain):
            namespace, name = split_key(key)
            try:
                self._writer.read(namespace, name)
            except ApiError as error:
                if not error.is_not_found:
                    self._due[key] = self._clock.monotonic() + RETRY_SECONDS
                    continue
            self._uncertain.discard(key)
            self._state.enqueue(key)
        return self._uncertain

    def _settle(self, key: str, now: datetime) -> Sequence[StatusUpdate]:
        gang = self._gangs.get(key)
        self._queue_of_waiting.remove(key)
        self._homeless.discard(key)
        self._resizing.forget(key)
        if self._is_ending(key, gang) and not self._permit.reject(key):
            # Bindings are under way, and will be heard of: until then its room is not for others.
            return ()
        if gang is None or self._is_another(key, gang):
            self._forget(key)
        if gang is None:
            return ()
        self._uids[key] = gang.metadata.uid
        all_pods = self._pods.by_index(BY_GANG, key)
        pods = pods_by_member(gang, all_pods)
        if self._state.is_attempt_rejected(gang) and gang.status.phase == ADMITTED and lifecycle.is_wanted(gang):
            return (self._return(key, gang, pods, now),)
        idle = self._idle_seconds(key, gang, pods)
        has_succeeded = self._reservations.has_succeeded(gang)
        status = lifecycle.observed_status(gang, pods, idle, now, any_succeeded=has_succeeded)
        if status is not None:
            return (StatusUpdate(gang, status, _result_of(status)),)
        standing = state_of(gang)
        if standing is GangState.PLACED:
            gang = self._state.observed_requests.apply(key, gang)
            self._resizing.see(gang, pods, all_pods, has_succeeded, now)
            return self._place(key, gang, pods)
        self._reservations.unreserve(key)
        if standing is GangState.QUEUED:
            self._queue(key, lifecycle.with_attempt_of_pods(gang, all_pods))
        return ()

    def _is_another(self, key: str, gang: Gang) -> bool:
        """Whether the Gang was deleted and made anew, which nobody may have seen."""
        return self._uids.get(key, gang.metadata.uid) != gang.metadata.uid

    def _is_ending(self, key: str, gang: Gang | None) -> bool:
        """Whether what is placed must go, and not because the gate gave it up."""
        if gang is None or self._is_another(key, gang):
            return True
        return gang.status.phase in (ADMITTED, BOUND) and not (lifecycle.is_wanted(gang) and lifecycle.has_pods(gang))

    def _queue(self, key: str, gang: Gang) -> None:
        believed = self._state.observed_requests.expire(key, gang)
        if believed is not None:
            self._wake(key, self._clock.monotonic() + believed)
        self._queue_of_waiting.put(self._state.observed_requests.apply(key, gang))

    def _place(self, key: str, seen: Gang, pods: Mapping[str, ScheduledPod]) -> Sequence[StatusUpdate]:
        """Room, seats and nodes of a placed gang; a update if its placement is not what it should be."""
        gang = self._reservations.with_reassignments(
            lifecycle.with_observed_nodes(lifecycle.without_removed_members(seen), pods)
        )
        if not self._reservations.reserve(gang, pods):
            self._wake(key, self._clock.monotonic() + RETRY_SECONDS)
        refused = self._state.rejected_nodes.of(key)
        found, is_any_left = self._reservations.reassign(gang, pods, refused, seen.metadata.resource_version)
        if is_any_left:
            self._homeless.add(key)
        status = lifecycle.reassigned_status(gang, found)
        late = self._come_late(key, pods)
        if status.placement == seen.status.placement:
            self._late += [(pods[member], seen) for member in late]
            return ()
        before = placed_nodes(seen.status)
        moved = {member for member, node in placed_nodes(status).items() if before.get(member) != node}
        self._unseen.setdefault(key, set()).update(moved - pods.keys())
        pods_to_wake = tuple(pods[member] for member in sorted(moved & pods.keys() | late))
        return (
            StatusUpdate(
                seen, status, StatusChange.REASSIGNED if moved else StatusChange.RESIZED, pods_to_wake=pods_to_wake
            ),
        )

    def _come_late(self, key: str, pods: Mapping[str, ScheduledPod]) -> set[str]:
        """Members that got another node before their pods were seen here, and are waiting now.

        kube-scheduler may see a pod first, refuse the node that it should have, and not ask again for minutes.
        """
        unseen = self._unseen.get(key, set())
        come = unseen & pods.keys()
        unseen -= come
        return {member for member in come if not lifecycle.is_bound(pods[member])}

    def _idle_seconds(self, key: str, gang: Gang, pods: Mapping[str, ScheduledPod]) -> float:
        """For how long no member of a bound gang has lived."""
        if gang.status.phase != BOUND or any(lifecycle.is_unfinished(pod) for pod in pods.values()):
            self._idle_since.pop(key, None)
            return 0.0
        now = self._clock.monotonic()
        since = self._idle_since.setdefault(key, now)
        self._wake(key, since + lifecycle.replacement_seconds(gang, pods))
        return now - since

    def _forget(self, key: str) -> None:
        self._reservations.unreserve(key)
        self._resizing.forget(key)
        self._state.forget(key)
        self._queue_of_waiting.forget(key)
        for moments in (self._due, self._idle_since):
            moments.pop(key, None)
        self._unseen.pop(key, None)
        self._failures.pop(key, None)
        self._uids.pop(key, None)

    def _return(self, key: str, gang: Gang, pods: Mapping[str, ScheduledPod], now: datetime) -> StatusUpdate:
        """Back to the queue, after a rest that is longer each time."""
        failures = self._failures.get(key, 0) + 1
        cap = min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2.0 ** min(failures, 16))
        bound = sum(lifecycle.is_bound(pod) for pod in pods.values())
        status = lifecycle.requeued_status(gang, bound, self._rng.uniform(cap / 2, cap), now)
        return StatusUpdate(gang, status, StatusChange.REQUEUED)

    # Writing

    def _write(self, updates: Sequence[StatusUpdate]) -> None:
        for update, error in self._writer.write(updates):
            if error is None:
                self._note_written(update)
            else:
                self._note_failed(update, error)

    def _note_written(self, update: StatusUpdate) -> None:
        key = key_of(update.gang)
        self._queue_of_waiting.written(key)
        if update.change == StatusChange.BOUND:
            self._failures.pop(key, None)
        if update.change == StatusChange.REQUEUED:
            self._failures[key] = self._failures.get(key, 0) + 1
        self._state.enqueue(key)

    def _note_failed(self, update: StatusUpdate, error: ApiError) -> None:
        """Give the reservation back, unless it may have been written all the same, and look again after a rest."""
        key = key_of(update.gang)
        if update.is_admission and error.outcome_unknown:
            self._uncertain.add(key)
        elif update.is_admission:
            with self._state.lock:
                self._reservations.unreserve(key)
            self._state.capacity_changed()
        self._due[key] = self._clock.monotonic() + max(RETRY_SECONDS, error.retry_after_seconds or 0.0)
        self._queue_of_waiting.not_written(key, self._due[key])


def _result_of(status: GangStatus) -> StatusChange:
    """Of what pods and spec led to."""
    return StatusChange.BOUND if status.phase == BOUND else StatusChange.RELEASED
