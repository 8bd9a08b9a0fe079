"""Checks the invariants of gang scheduling after each change. Pure: takes events, returns violations.

Theory of operation. The caller passes every version of every pod, node and gang in the order in which the server wrote
them (audit.order), with the time, and calls `tick` several times a second. The rules, by the name of their violation:

    over-committed   a pod was bound to a node without enough capacity for it. If the capacity had sufficed but for
                     pods of other schedulers that the pod's own could not know of yet (audit.races), the case is
                     reported in `races` instead. Nodes that shrink, or are deleted and recreated, are not violations.
    not-admitted     a pod was bound although its gang was not admitted (Waiting, Unschedulable, or missing), or the pod
                     belongs to another attempt or is no placed member. If the Gang was deleted, a Binding may be in
                     flight: no transaction spans two objects, and a Binding cannot be recalled. For
                     `in_flight_seconds` after the deletion, pods that could have been bound before may be bound.
    partly-bound     for longer than `bind_deadline_seconds` pods of a gang used capacity while other members of its
                     placement had none, or the gang was not admitted. A member whose pod has finished counts as bound.
    stuck            an admitted gang is not bound, and none of its pods was created or bound for that long.
    fits-and-waits   a gang waited for longer than `fit_grace_seconds` although all of it fitted into free capacity that
                     is not reserved for other gangs, during all of that time; no gang before it in the queue had waited
                     so long that nodes are nominated for it; and no gang was being reduced, whose capacity is kept for
                     one waiting gang. Reported only if filling one node after another finds a placement.
    preempted        kube-scheduler has evicted a pod in favour of another one.
    quota-exceeded   when a gang got members, the pods of its namespace, and the reservations for members without one,
                     requested more than a ResourceQuota of the namespace allows.

With preemption (`preemption_grace_seconds`; audit.sharing):

    preempted-by-lower     a gang was asked to leave for one of equal or lower priority
    preempted-too-early    or before it had been bound for the grace time
    preempted-for-nothing  all victims have left, and for `preemptor_seconds` their preemptor was not admitted, although
                           it wants to start
    priority-inversion     for `inversion_seconds` a gang waited that would fit without bound gangs of lower priority
                           which may be preempted; no preemption was open and no gang was being reduced; and the same
                           held for every waiting gang of its priority or a higher one

Each violation is reported once per pod, or once per attempt of a gang. All times are seconds since the epoch.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from audit.capacity import ClusterCapacity, fits
from audit.objects import Gang, Object, Pod, Quota, gang_of, key_of, node_of, pod_of, quota_of
from audit.races import Outages, pods_unknown_to
from audit.records import GangRecord, Timer, rank, reserved_capacity
from audit.sharing import Preemptions, is_inverted, over_quota

PODS, NODES, GANGS, QUOTAS = KINDS = ("pods", "nodes", "gangs", "resourcequotas")
# The version found by a list after a gap in a watch: the order of such changes is unknown.
RELISTED = "RELISTED"


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of the rules (see the module); `starvation_timeout_seconds` is the gang scheduler's setting."""

    bind_deadline_seconds: float = 90.0
    fit_grace_seconds: float = 2.0
    starvation_timeout_seconds: float = 30.0
    race_seconds: float = 1.0
    in_flight_seconds: float = 15.0
    """The duration of a Lease: a gang scheduler that has not learned of the deletion of a Gang by then has lost the
    leadership. It exceeds the timeout of a Binding request (10 s), which the server may process until then."""
    resize_seconds: float = 60.0
    """How long after a resize the released capacity may be kept for one gang, while the removed pods end."""
    preemption_grace_seconds: float | None = None
    """The gang scheduler's setting; None if no gang is preempted."""
    preemptor_seconds: float = 60.0
    inversion_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    subject: str
    text: str
    at: float


class Audit:
    """Applies events to a view of the cluster and records violations (see the module). Not thread-safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._capacity = ClusterCapacity()
        self._pods: dict[str, Pod] = {}
        self._records: dict[str, GangRecord] = {}
        # When each existing pod was bound, by uid.
        self._bound_at: dict[str, float] = {}
        # Until when each pod of a deleted Gang may still be bound, by uid.
        self._in_flight_until: dict[str, float] = {}
        self._quotas: dict[str, Quota] = {}
        self._preemptions = Preemptions(limits.preemption_grace_seconds, limits.preemptor_seconds)
        self._inverted = Timer()
        self._outages = Outages()
        # Names of the schedulers of gang pods; these call the gang scheduler.
        self._gang_schedulers: set[str] = set()
        self._gang_uids: set[str] = set()
        self._pod_uids: set[str] = set()
        self._reported: set[tuple[str, str]] = set()
        self.violations: list[Violation] = []
        self.races: list[Violation] = []
        self.events = 0
        self.bound = 0

    def seed(self, kind: str, change: str, obj: Object, now: float) -> None:
        """Applies an event from before all kinds were listed; it causes no violation."""
        self._apply(kind, change, obj, now, is_judged=False)

    def event(self, kind: str, change: str, obj: Object, now: float) -> None:
        """Applies one event; `change` is the type of the watch event (ADDED, MODIFIED, DELETED) or RELISTED."""
        self.events += 1
        self._apply(kind, change, obj, now, is_judged=True)

    def outage(self, now: float) -> None:
        """Records that no gang scheduler runs or can read the cluster; called every second during an outage.

        The duration of an outage counts for no deadline. The time that a gang fits and waits starts again, since the
        gang scheduler reads the whole cluster again. The schedulers learn of events of that time only after the outage.
        """
        lasted = self._outages.note(now)
        self.lost(lasted)
        for timer in (self._inverted, *(record.fits for record in self._records.values())):
            timer.update(now, holds=False)
        self._in_flight_until = {uid: until + lasted for uid, until in self._in_flight_until.items()}

    def lost(self, seconds: float) -> None:
        """Extends all deadlines by the time that other programs of a busy machine used."""
        timers = [timer for record in self._records.values() for timer in record.timers]
        for timer in (self._inverted, *timers, *self._preemptions.timers):
            timer.delay(seconds)

    def tick(self, now: float) -> None:
        """Reports the violations of deadlines that have passed."""
        for record in self._records.values():
            self._judge_binding_of(record, now)
        self._judge_waits(now, [record for record in self._records.values() if record.gang.is_waiting])
        self._preemptions.tick(now, self._add_violation)
        self._judge_inversion(now)

    def report(self) -> dict[str, Any]:
        """Returns the fields of the JSON line."""
        return {
            "gangs": len(self._gang_uids),
            "pods": len(self._pod_uids),
            "bound": self.bound,
            "events": self.events,
            "races": [asdict(race) for race in self.races],
            "violations": [asdict(violation) for violation in self.violations],
        }

    def _apply(self, kind: str, change: str, obj: Object, now: float, *, is_judged: bool) -> None:
        is_gone = change == "DELETED"
        if kind == NODES:
            self._set_node(obj, is_gone)
        elif kind == GANGS:
            self._set_gang(obj, change, now, is_judged)
        elif kind == QUOTAS:
            self._quotas.pop(key_of(obj), None)
            if not is_gone:
                self._quotas[key_of(obj)] = quota_of(obj)
        else:
            # A pod that is created with a node name was not bound by a scheduler.
            is_placed_by_hand = change == "ADDED" and bool(obj["spec"].get("nodeName"))
            self._set_pod(obj, change, now, is_judged and not is_placed_by_hand)
        # The change may have taken capacity. A gang that does not fit any more waits from the start once it fits again.
        self._judge_waits(now, [record for record in self._records.values() if record.fits.since is not None])

    def _set_node(self, obj: Object, is_gone: bool) -> None:
        if is_gone:
            self._capacity.nodes.pop(key_of(obj), None)
        else:
            self._capacity.nodes[key_of(obj)] = node_of(obj)

    def _set_gang(self, obj: Object, change: str, now: float, is_judged: bool) -> None:
        gang, is_gone = gang_of(obj), change == "DELETED"
        self._gang_uids.add(gang.uid)
        known = self._records.get(gang.key)
        is_same = known is not None and known.gang.uid == gang.uid
        if known is not None and is_gone == is_same:
            self._remove_gang(self._records.pop(gang.key), now)
        if is_gone:
            return
        before = known.gang if known is not None and is_same else None
        if known is None or before is None:
            pods = {pod.key: pod for pod in self._pods.values() if pod.gang == gang.key}
            succeeded = {(pod.attempt, pod.member) for pod in pods.values() if pod.phase == "Succeeded"}
            self._records[gang.key] = known = GangRecord(gang, Timer(now), pods, succeeded)
        else:
            if (before.phase, before.attempt, before.placement) != (gang.phase, gang.attempt, gang.placement):
                known.idle = Timer(now)
            known.gang = gang
        known.partly.update(now, holds=known.is_partly_bound)
        by = self._records.get(gang.preemption.by) if gang.preemption is not None else None
        self._preemptions.note_gang(before, gang, by.gang if by is not None else None, now, self._add_violation)
        if is_judged and change != RELISTED and gang.is_placed and _has_more_members(before, gang):
            self._judge_quota(gang, now)

    def _remove_gang(self, record: GangRecord, now: float) -> None:
        """Handles a Gang that was deleted, or replaced by another one of the same name."""
        self._preemptions.note_deleted(record.gang, now)
        for pod in record.pods.values():
            if not pod.node and not _fault_of(record.gang, pod):
                self._in_flight_until[pod.uid] = now + self._limits.in_flight_seconds

    def _set_pod(self, obj: Object, change: str, now: float, is_judged: bool) -> None:
        pod, is_gone = pod_of(obj), change == "DELETED"
        self._pod_uids.add(pod.uid)
        before = self._pods.pop(pod.key, None)
        if before is not None and before.uses_capacity:
            self._capacity.remove(before)
        if not is_gone:
            self._pods[pod.key] = pod
            if pod.uses_capacity:
                self._capacity.add(pod)
        is_new = before is None or before.uid != pod.uid
        is_bound_now = bool(pod.node) and (before is None or is_new or not before.node) and not is_gone
        self._update_record(pod, is_gone, is_progress=is_new or is_bound_now, now=now)
        if is_bound_now:
            self.bound += 1
            self._note_round(pod, now)
            if is_judged:
                self._judge_binding(pod, now, is_seen=change != RELISTED)
            self._bound_at[pod.uid] = now
        if is_gone:
            self._bound_at.pop(pod.uid, None)
            self._in_flight_until.pop(pod.uid, None)
        if pod.is_preempted and is_judged:
            self._add_violation("preempted", pod.uid, pod.key, "kube-scheduler has preempted it", now)

    def _update_record(self, pod: Pod, is_gone: bool, *, is_progress: bool, now: float) -> None:
        record = self._records.get(pod.gang)
        if record is None:
            return
        if is_gone:
            record.pods.pop(pod.key, None)
        else:
            record.pods[pod.key] = pod
        if pod.phase == "Succeeded":
            record.succeeded.add((pod.attempt, pod.member))
        if is_progress:
            record.idle = Timer(now)
        record.partly.update(now, holds=record.is_partly_bound)

    # The rules

    def _judge_binding(self, pod: Pod, now: float, *, is_seen: bool) -> None:
        is_in_flight = now <= self._in_flight_until.get(pod.uid, 0.0)
        record = self._records.get(pod.gang)
        fault = _fault_of(record.gang, pod) if record is not None else f"gang {pod.gang} does not exist"
        if is_seen and pod.gang and not is_in_flight and fault:
            self._add_violation("not-admitted", pod.uid, pod.key, f"bound to {pod.node}, although {fault}", now)
        excess = self._capacity.excess(pod) if pod.uses_capacity else {}
        if not excess:
            return
        figures = ", ".join(f"{name} {used / 1000:g} of {has / 1000:g}" for name, (used, has) in sorted(excess.items()))
        text = f"bound to {pod.node}, which lacked capacity: {figures} taken, after {self._latest_on(pod, now)}"
        if self._capacity.excess(pod, without=self._unknown_to(pod, now)):
            self._add_violation("over-committed", pod.uid, pod.key, text, now)
        else:
            self.races.append(Violation("over-committed", pod.key, text, now))

    def _note_round(self, pod: Pod, now: float) -> None:
        if pod.gang:
            self._gang_schedulers.add(pod.scheduler)
        if (record := self._records.get(pod.gang)) is not None:
            record.round.note(pod.attempt, now, self._limits.race_seconds)

    def _unknown_to(self, pod: Pod, now: float) -> list[Pod]:
        """Returns the pods on the pod's node that its scheduler could not know of (see `audit.races`)."""
        record = self._records.get(pod.gang)
        decided_at = now if record is None else record.round.began_at
        if self._gang_schedulers and pod.scheduler not in self._gang_schedulers:
            decided_at = pod.created_at
        race = self._limits.race_seconds
        known_at = self._outages.known_at(decided_at, race)
        return list(pods_unknown_to(pod, self._capacity.pods_on(pod.node), self._bound_at, known_at, race))

    def _latest_on(self, pod: Pod, now: float) -> str:
        """Names the other pods that were bound to the same node last, to help to find the cause."""
        siblings = [other for other in self._capacity.pods_on(pod.node) if pod.gang and other.gang == pod.gang]
        others = [other for other in self._capacity.pods_on(pod.node) if other not in siblings and other.uid != pod.uid]
        others.sort(key=lambda other: -self._bound_at.get(other.uid, 0.0))
        return ", ".join(
            f"{other.key} ({other.scheduler}, {now - self._bound_at.get(other.uid, 0.0):.2f} s ago)"
            for other in others[:4]
        )

    def _judge_binding_of(self, record: GangRecord, now: float) -> None:
        """Judges whether an admitted gang makes progress, and a partly bound one gets the rest of its members."""
        gang, limit = record.gang, self._limits.bind_deadline_seconds
        once_for = f"{gang.uid}/{gang.attempt}"
        if (lasted := record.partly.lasted(now)) > limit:
            lacking = ", ".join(sorted(gang.placement.keys() - record.served)[:5]) or "admission"
            text = f"{gang.phase}, attempt {gang.attempt}: for {lasted:.1f} s without {lacking}"
            self._add_violation("partly-bound", once_for, gang.key, text, now)
        is_admitted = gang.phase == "Admitted" and not gang.is_being_deleted
        if is_admitted and (lasted := record.idle.lasted(now)) > limit:
            text = f"admitted, attempt {gang.attempt}: no pod was created or bound for {lasted:.1f} s"
            self._add_violation("stuck", once_for, gang.key, text, now)

    def _judge_quota(self, gang: Gang, now: float) -> None:
        """Judges the quotas of the namespace of a gang that got members.

        Pods without a reservation do not count in their first moments, when the gang scheduler may not know them.
        """
        # Times of creation are whole seconds.
        since = now - self._limits.race_seconds - 1.0
        if exceeded := self._exceeded_quotas(gang.namespace, since=since):
            figures = ", ".join(f"{name} {total / 1000:g} of {limit / 1000:g}" for name, total, limit in exceeded)
            text = f"attempt {gang.attempt}: its namespace requests or has reserved {figures}"
            self._add_violation("quota-exceeded", f"{gang.uid}/{gang.attempt}", gang.key, text, now)

    def _is_over_quota(self, gang: Gang) -> bool:
        """Reports whether the quotas of its namespace may not leave enough for all of a waiting gang."""
        placement = {f"{need.name}-{number}": "" for need in gang.needs for number in range(need.count)}
        return bool(self._exceeded_quotas(gang.namespace, waiting=replace(gang, placement=placement)))

    def _exceeded_quotas(
        self, namespace: str, *, since: float = math.inf, waiting: Gang | None = None
    ) -> list[tuple[str, int, int]]:
        """Returns the resources whose quota is exceeded (`over_quota`), by what the namespace uses and has reserved.

        Pods that were created after `since` count only with a reservation. With a `waiting` gang, all of it counts,
        and what the status of a quota says.
        """
        quotas = [quota for quota in self._quotas.values() if quota.namespace == namespace]
        if not quotas:
            return []
        own = (pod for pod in self._pods.values() if pod.key.partition("/")[0] == namespace)
        pods = [pod for pod in own if pod.created_at < since or self._is_placed(pod)]
        placed = [record for record in self._records.values() if record.gang.is_placed]
        members = [(record.gang, record.with_pods) for record in placed if record.gang.namespace == namespace]
        if waiting is not None:
            members.append((waiting, set()))
        return over_quota(quotas, pods, members, with_status=waiting is not None)

    def _is_placed(self, pod: Pod) -> bool:
        record = self._records.get(pod.gang)
        return record is not None and record.gang.is_placed and record.gang.attempt == pod.attempt

    def _judge_inversion(self, now: float) -> None:
        """Judges whether gangs wait that could preempt others."""
        if self._limits.preemption_grace_seconds is None:
            return
        is_capacity_kept = self._preemptions.is_any_open or self._is_any_resizing(now)
        since = now - self._limits.preemption_grace_seconds
        is_any = not is_capacity_kept and is_inverted(
            self._records.values(), self._capacity, since, self._is_over_quota
        )
        self._inverted.update(now, holds=is_any)
        if (lasted := self._inverted.lasted(now)) > self._limits.inversion_seconds:
            first = min((record.gang for record in self._records.values() if record.gang.is_waiting), key=rank)
            text = f"for {lasted:.1f} s gangs of lower priority have run that it could preempt"
            self._add_violation("priority-inversion", f"{self._inverted.since}", first.key, text, now)

    def _judge_waits(self, now: float, records: list[GangRecord]) -> None:
        if not records:
            return
        free = self._capacity.free(reserved_capacity(self._records.values()))
        first_starving = self._first_starving_rank(now)
        is_capacity_kept = self._is_any_resizing(now) or self._preemptions.is_any_open
        for record in records:
            gang = record.gang
            is_free_to_start = (
                not is_capacity_kept
                and gang.is_waiting
                and gang.not_before <= now
                and (first_starving is None or rank(gang) <= first_starving)
                and fits(gang.needs, self._capacity, free)
                and not self._is_over_quota(gang)
            )
            record.fits.update(now, holds=is_free_to_start)
            if (lasted := record.fits.lasted(now)) > self._limits.fit_grace_seconds:
                text = f"{gang.phase or 'new'}: has waited for {lasted:.1f} s although all of it fits"
                self._add_violation("fits-and-waits", f"{gang.uid}/{gang.attempt}", gang.key, text, now)

    def _is_any_resizing(self, now: float) -> bool:
        """Reports whether running gangs are being reduced or were reduced recently."""
        gangs = (record.gang for record in self._records.values())
        since = now - self._limits.resize_seconds
        return any(gang.is_resize_requested or (gang.resized_at and gang.resized_at > since) for gang in gangs)

    def _first_starving_rank(self, now: float) -> tuple[int, float, str] | None:
        """Returns the rank of the first gang for which nodes may be nominated; gangs behind it may have to wait."""
        # Slightly less than the timeout, since the clocks of the gang scheduler and the auditor may differ.
        timeout = 0.9 * self._limits.starvation_timeout_seconds - 1.0
        waiting = (record.gang for record in self._records.values() if record.gang.is_waiting)
        starving = (gang for gang in waiting if now - gang.since >= timeout and not self._is_over_quota(gang))
        return min(map(rank, starving), default=None)

    def _add_violation(self, rule: str, once_for: str, subject: str, text: str, now: float) -> None:
        if (rule, once_for) not in self._reported:
            self._reported.add((rule, once_for))
            self.violations.append(Violation(rule, subject, text, now))


def _fault_of(gang: Gang, pod: Pod) -> str:
    """Returns why a pod should not be bound for its Gang; empty if it may be."""
    if gang.phase not in ("Admitted", "Bound", "Released"):
        return f"its gang is {gang.phase or 'new'}"
    if gang.attempt != pod.attempt:
        return f"it belongs to attempt {pod.attempt} and its gang is in attempt {gang.attempt}"
    if gang.placement and pod.member not in gang.placement:
        return "it is not a placed member of its gang"
    return ""


def _has_more_members(before: Gang | None, gang: Gang) -> bool:
    """Reports whether the gang was placed, or got members in addition."""
    if before is None or not before.is_placed or before.attempt != gang.attempt:
        return True
    return bool(gang.placement.keys() - before.placement.keys())
