"""What must never happen where gangs are scheduled, checked after every single change. Pure: events in, violations out.

Theory of operation. The caller gives every version of every pod, node and gang in the order in which the server wrote
them (audit.order), with the time, and calls `tick` a few times in a second. Rules, by the name of their violation:

    over-committed   a pod was bound to a node that had no room for it. Where there would have been room but for pods
                     of other schedulers that its own could not know of (audit.races), that is counted apart, in
                     `races`. A node that shrinks, or is deleted and comes back, is nobody's fault.
    not-admitted     a pod of a gang was bound that is not admitted (Waiting, Unschedulable, or not there at all), or a
                     pod of another attempt, or one that is no placed member. Where the Gang was deleted, a Binding may
                     be under way: no transaction spans two objects, and nobody can take it back. So for
                     `in_flight_seconds` after, a pod may be bound that was there before and was to be bound then.
    partly-bound     for longer than `bind_deadline_seconds` pods of a gang held room while others of its placement had
                     none, or while the gang was not admitted at all. A member whose pod has finished counts as bound.
    stuck            an admitted gang is not bound, and for so long nothing has come nearer: no pod made, none bound.
    fits-and-waits   a gang waited for longer than `fit_grace_seconds` though all of it fitted on free room that is not
                     reserved for others, at every instant of that time, nobody who goes before it had waited so
                     long that nodes are kept for it, and no gang was giving members away, whose room is kept for one
                     that waits. Said only where filling node after node finds the fit.
    preempted        kube-scheduler has evicted a pod in favour of another one.

Each is said once for each pod, or for each attempt of a gang. All times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from audit.objects import Gang, Object, Pod, gang_of, is_partly_bound, key_of, node_of, pod_of
from audit.races import Outages, Round, unknown_pods
from audit.room import Rooms, fits, reservations

PODS, NODES, GANGS = KINDS = ("pods", "nodes", "gangs")
# A change that nobody saw: which of several came first is not known.
RELISTED = "RELISTED"


@dataclass(frozen=True, slots=True)
class Limits:
    """See the module; `starvation_timeout_seconds` is the gang scheduler's own."""

    bind_deadline_seconds: float = 90.0
    fit_grace_seconds: float = 2.0
    starvation_timeout_seconds: float = 30.0
    race_seconds: float = 1.0
    in_flight_seconds: float = 15.0
    """As long as a Lease: who has not heard by then that a Gang is gone does not lead any more. Longer than the gang
    scheduler waits for an answer to a Binding (10 s), which may be carried out until then."""
    resize_seconds: float = 60.0
    """How long after a resize its room may still be kept for one gang: its pods have to end."""


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    subject: str
    text: str
    at: float


@dataclass(slots=True)
class _Life:
    """What is remembered of a gang besides its last version."""

    gang: Gang
    progress_at: float
    pods: dict[str, Pod] = field(default_factory=dict)
    # Members that have succeeded in an attempt, even if their pods are gone.
    succeeded: set[tuple[str, str]] = field(default_factory=set)
    partly_since: float | None = None
    fits_since: float | None = None
    round: Round = field(default_factory=Round)

    @property
    def served(self) -> set[str]:
        """Members of the present attempt that are bound, or were and have finished."""
        attempt = self.gang.attempt
        now = {pod.member for pod in self.pods.values() if pod.attempt == attempt and (pod.node or pod.is_finished)}
        return now | {member for number, member in self.succeeded if number == attempt}

    @property
    def is_partly_bound(self) -> bool:
        return is_partly_bound(self.gang, self.pods.values(), self.served)

    @property
    def covered(self) -> set[str]:
        """Members for which nothing need be kept: their pod is there, or has succeeded."""
        gang = self.gang
        there = {
            pod.member
            for pod in self.pods.values()
            if pod.attempt == gang.attempt and pod.takes_room and pod.node == gang.placement.get(pod.member)
        }
        return there | {member for number, member in self.succeeded if number == gang.attempt}


class Audit:
    """See the module. One thread at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rooms = Rooms()
        self._pods: dict[str, Pod] = {}
        self._lives: dict[str, _Life] = {}
        # When each pod that is there was bound, by uid.
        self._bound_at: dict[str, float] = {}
        # Until when each pod may still be bound for a Gang that has gone, by uid.
        self._in_flight_until: dict[str, float] = {}
        self._outages = Outages()
        # Those that the pods of gangs name: they ask the gang scheduler.
        self._gang_schedulers: set[str] = set()
        self._gang_uids: set[str] = set()
        self._pod_uids: set[str] = set()
        self._said: set[tuple[str, str]] = set()
        self.violations: list[Violation] = []
        self.races: list[Violation] = []
        self.events = 0
        self.bound = 0
        self.longest_partly_bound_seconds = 0.0
        self.longest_fitting_wait_seconds = 0.0

    def seed(self, kind: str, change: str, obj: Object, now: float) -> None:
        """What was there, or happened, before all kinds were listed: nobody is blamed for it."""
        self._apply(kind, change, obj, now, is_judged=False)

    def event(self, kind: str, change: str, obj: Object, now: float) -> None:
        """One change, `change` as in a watch: ADDED, MODIFIED, DELETED; or RELISTED."""
        self.events += 1
        self._apply(kind, change, obj, now, is_judged=True)

    def outage(self, now: float) -> None:
        """No gang scheduler works now, or it cannot read the cluster; to be said every second while it is so.

        That time counts for no deadline; who fits and waits begins to wait anew, since all is read anew; and what
        happens is not known to anybody before it is over.
        """
        lasted = self._outages.note(now)
        for life in self._lives.values():
            life.fits_since = None
            life.progress_at += lasted
            life.partly_since = None if life.partly_since is None else life.partly_since + lasted
        self._in_flight_until = {uid: until + lasted for uid, until in self._in_flight_until.items()}

    def lost(self, seconds: float) -> None:
        """So much of the time that has passed was not the programs': it counts for no deadline."""
        for life in self._lives.values():
            life.progress_at += seconds
            life.partly_since = None if life.partly_since is None else life.partly_since + seconds
            life.fits_since = None if life.fits_since is None else life.fits_since + seconds

    def tick(self, now: float) -> None:
        """Whatever has lasted too long by now."""
        for life in self._lives.values():
            self._judge_partly(life, now)
            self._judge_stuck(life, now)
        self._judge_waits(now, [life for life in self._lives.values() if life.gang.is_waiting])

    def report(self) -> dict[str, Any]:
        """For the JSON line."""
        return {
            "gangs": len(self._gang_uids),
            "pods": len(self._pod_uids),
            "bound": self.bound,
            "events": self.events,
            "longest_partly_bound_seconds": round(self.longest_partly_bound_seconds, 2),
            "longest_fitting_wait_seconds": round(self.longest_fitting_wait_seconds, 2),
            "races": [asdict(each) for each in self.races],
            "violations": [asdict(each) for each in self.violations],
        }

    def _apply(self, kind: str, change: str, obj: Object, now: float, *, is_judged: bool) -> None:
        is_gone = change == "DELETED"
        if kind == NODES:
            self._set_node(obj, is_gone)
        elif kind == GANGS:
            self._set_gang(obj, is_gone, now)
        else:
            # Who creates a pod with a node has put it there: nobody has bound it.
            is_placed_by_hand = change == "ADDED" and bool(obj["spec"].get("nodeName"))
            self._set_pod(obj, change, now, is_judged and not is_placed_by_hand)
        # Less room, or another gang's: who seemed to fit may not any more, and then begins to wait anew.
        self._judge_waits(now, [life for life in self._lives.values() if life.fits_since is not None])

    def _set_node(self, obj: Object, is_gone: bool) -> None:
        if is_gone:
            self._rooms.nodes.pop(key_of(obj), None)
        else:
            self._rooms.nodes[key_of(obj)] = node_of(obj)

    def _set_gang(self, obj: Object, is_gone: bool, now: float) -> None:
        gang = gang_of(obj)
        self._gang_uids.add(gang.uid)
        known = self._lives.get(gang.key)
        is_same = known is not None and known.gang.uid == gang.uid
        if known is not None and is_gone == is_same:
            self._depart(self._lives.pop(gang.key), now)
        if is_gone:
            return
        if known is None or not is_same:
            pods = {pod.key: pod for pod in self._pods.values() if pod.gang == gang.key}
            succeeded = {(pod.attempt, pod.member) for pod in pods.values() if pod.phase == "Succeeded"}
            self._lives[gang.key] = _Life(gang, now, pods, succeeded)
            self._note_partly(self._lives[gang.key], now)
        else:
            before = known.gang
            if (before.phase, before.attempt, before.placement) != (gang.phase, gang.attempt, gang.placement):
                known.progress_at = now
            known.gang = gang
            self._note_partly(known, now)

    def _depart(self, life: _Life, now: float) -> None:
        """The Gang is gone, or another one has its name by now."""
        for pod in life.pods.values():
            if not pod.node and not _fault_of(life.gang, pod):
                self._in_flight_until[pod.uid] = now + self._limits.in_flight_seconds

    def _set_pod(self, obj: Object, change: str, now: float, is_judged: bool) -> None:
        pod, is_gone = pod_of(obj), change == "DELETED"
        self._pod_uids.add(pod.uid)
        before = self._pods.pop(pod.key, None)
        if before is not None and before.takes_room:
            self._rooms.take_away(before)
        if not is_gone:
            self._pods[pod.key] = pod
            if pod.takes_room:
                self._rooms.put(pod)
        is_new = before is None or before.uid != pod.uid
        is_bound_now = bool(pod.node) and (before is None or is_new or not before.node) and not is_gone
        self._tell_gang(pod, is_gone, is_progress=is_new or is_bound_now, now=now)
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
            self._say("preempted", pod.uid, pod.key, "kube-scheduler has evicted it", now)

    def _tell_gang(self, pod: Pod, is_gone: bool, *, is_progress: bool, now: float) -> None:
        life = self._lives.get(pod.gang)
        if life is None:
            return
        if is_gone:
            life.pods.pop(pod.key, None)
        else:
            life.pods[pod.key] = pod
        if pod.phase == "Succeeded":
            life.succeeded.add((pod.attempt, pod.member))
        if is_progress:
            life.progress_at = now
        self._note_partly(life, now)

    # The rules

    def _judge_binding(self, pod: Pod, now: float, *, is_seen: bool) -> None:
        is_in_flight = now <= self._in_flight_until.get(pod.uid, 0.0)
        if is_seen and pod.gang and not is_in_flight and (fault := self._fault(pod)):
            self._say("not-admitted", pod.uid, pod.key, f"bound to {pod.node}, though {fault}", now)
        excess = self._rooms.excess(pod) if pod.takes_room else {}
        if not excess:
            return
        figures = ", ".join(f"{name} {used / 1000:g} of {has / 1000:g}" for name, (used, has) in sorted(excess.items()))
        text = f"bound to {pod.node}, which had no room: {figures} taken, after {self._latest_on(pod, now)}"
        if self._rooms.excess(pod, without=self._unknown_to(pod, now)):
            self._say("over-committed", pod.uid, pod.key, text, now)
        else:
            self.races.append(Violation("over-committed", pod.key, text, now))

    def _fault(self, pod: Pod) -> str:
        """Why this pod should not have been bound; empty if it may."""
        life = self._lives.get(pod.gang)
        if life is None:
            return f"there is no gang {pod.gang}"
        return _fault_of(life.gang, pod)

    def _note_round(self, pod: Pod, now: float) -> None:
        if pod.gang:
            self._gang_schedulers.add(pod.scheduler)
        if (life := self._lives.get(pod.gang)) is not None:
            life.round.note(pod.attempt, now, self._limits.race_seconds)

    def _unknown_to(self, pod: Pod, now: float) -> list[Pod]:
        """Who is on the pod's node though its scheduler could not know it: see `audit.races`."""
        life = self._lives.get(pod.gang)
        decided_at = now if life is None else life.round.began_at
        if self._gang_schedulers and pod.scheduler not in self._gang_schedulers:
            decided_at = pod.created_at
        race = self._limits.race_seconds
        known_at = self._outages.known_at(decided_at, race)
        return list(unknown_pods(pod, self._rooms.pods_on(pod.node), self._bound_at, known_at, race))

    def _latest_on(self, pod: Pod, now: float) -> str:
        """Who else came to the same node last, as a start for whoever looks for the reason."""
        siblings = [other for other in self._rooms.pods_on(pod.node) if pod.gang and other.gang == pod.gang]
        others = [other for other in self._rooms.pods_on(pod.node) if other not in siblings and other.uid != pod.uid]
        others.sort(key=lambda other: -self._bound_at.get(other.uid, 0.0))
        return ", ".join(
            f"{each.key} ({each.scheduler}, {now - self._bound_at.get(each.uid, 0.0):.2f} s ago)" for each in others[:4]
        )

    def _note_partly(self, life: _Life, now: float) -> None:
        if not life.is_partly_bound:
            life.partly_since = None
        elif life.partly_since is None:
            life.partly_since = now

    def _judge_partly(self, life: _Life, now: float) -> None:
        if life.partly_since is None:
            return
        lasted = now - life.partly_since
        self.longest_partly_bound_seconds = max(self.longest_partly_bound_seconds, lasted)
        if lasted > self._limits.bind_deadline_seconds:
            gang = life.gang
            lacking = sorted(gang.placement.keys() - life.served)
            text = (
                f"{gang.phase}, attempt {gang.attempt}: for {lasted:.1f} s without {', '.join(lacking[:5]) or 'right'}"
            )
            self._say("partly-bound", f"{gang.uid}/{gang.attempt}", gang.key, text, now)

    def _judge_stuck(self, life: _Life, now: float) -> None:
        lasted = now - life.progress_at
        if life.gang.phase == "Admitted" and not life.gang.is_leaving and lasted > self._limits.bind_deadline_seconds:
            text = f"admitted, attempt {life.gang.attempt}, and for {lasted:.1f} s nothing came nearer"
            self._say("stuck", f"{life.gang.uid}/{life.gang.attempt}", life.gang.key, text, now)

    def _judge_waits(self, now: float, lives: list[_Life]) -> None:
        if not lives:
            return
        free = self._rooms.free(reservations(self._placed()))
        held_from = self._held_from(now)
        for life in lives:
            if self._is_room_given(now):
                life.fits_since = None
            else:
                self._judge_wait(life, free, held_from, now)

    def _is_room_given(self, now: float) -> bool:
        """Whether running gangs have been asked for members, or have just given some."""
        gangs = (life.gang for life in self._lives.values())
        since = now - self._limits.resize_seconds
        return any(each.is_asked or (each.resized_at and each.resized_at > since) for each in gangs)

    def _judge_wait(
        self, life: _Life, free: Mapping[str, Mapping[str, int]], held_from: tuple[int, float, str] | None, now: float
    ) -> None:
        gang = life.gang
        is_free_to_start = (
            gang.is_waiting and gang.not_before <= now and (held_from is None or _rank(gang) <= held_from)
        )
        if not is_free_to_start or not fits(gang.needs, self._rooms, free):
            life.fits_since = None
            return
        if life.fits_since is None:
            life.fits_since = now
        lasted = now - life.fits_since
        self.longest_fitting_wait_seconds = max(self.longest_fitting_wait_seconds, lasted)
        if lasted > self._limits.fit_grace_seconds:
            text = f"{gang.phase or 'new'}: has waited for {lasted:.1f} s though all of it fits"
            self._say("fits-and-waits", f"{gang.uid}/{gang.attempt}", gang.key, text, now)

    def _placed(self) -> Iterator[tuple[Gang, set[str]]]:
        return ((life.gang, life.covered) for life in self._lives.values() if life.gang.is_placed)

    def _held_from(self, now: float) -> tuple[int, float, str] | None:
        """The rank of the first gang for which nodes may be kept: who comes after it may have to wait."""
        # A little less, since its clock is not ours.
        patience = 0.9 * self._limits.starvation_timeout_seconds - 1.0
        starving = [
            _rank(each.gang)
            for each in self._lives.values()
            if each.gang.is_waiting and now - each.gang.since >= patience
        ]
        return min(starving, default=None)

    def _say(self, rule: str, once_for: str, subject: str, text: str, now: float) -> None:
        if (rule, once_for) not in self._said:
            self._said.add((rule, once_for))
            self.violations.append(Violation(rule, subject, text, now))


def _fault_of(gang: Gang, pod: Pod) -> str:
    """Why a pod should not be bound for this Gang of its own; empty if it may."""
    if gang.phase not in ("Admitted", "Bound", "Released"):
        return f"its gang is {gang.phase or 'new'}"
    if gang.attempt != pod.attempt:
        return f"it is of attempt {pod.attempt} and its gang in attempt {gang.attempt}"
    if gang.placement and pod.member not in gang.placement:
        return "it is no placed member of its gang"
    return ""


def _rank(gang: Gang) -> tuple[int, float, str]:
    """First comes first."""
    return -gang.priority, gang.since, gang.key
