"""Jobs under kube-scheduler alone: every pod for itself. The baseline; nothing of it is the gang scheduler's.

Theory of operation. A job's pods are made one after another and queue. kube-scheduler takes them by the time of their
last attempt; one that finds no room waits until room comes free, and is then tried again, those that still back off
(1 s, doubled by each attempt up to 10 s) after the others, by the second in which that ends. So jobs that are made at
the same time, or whose pods back off, take room in turns, and each can hold a part. A job works once all its pods have
a node.

If nothing works, no pod is still to be made, and jobs hold GPUs, that is a *deadlock*: Kubernetes would leave it so for
ever. After `deadlock_timeout_seconds` the pods of the youngest job that holds GPUs are deleted by hand and made anew.

Favourable to kube-scheduler: it takes no time, and all pods of a job that is done give their room back in one moment.

Source: kubernetes 1.36 pkg/scheduler/backend/queue (scheduling_queue.go, backoff_queue.go; PopFromBackoffQ is on) and
plugins/noderesources/fit.go (any pod that goes is a reason to try again).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from tfjob_controller.api.gang import kind_of
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.podsets import PodSet, pod_sets_of, requests_by_kind
from tfjob_controller.simulator.cluster import gang_of, gpus_by_node, key
from tfjob_controller.simulator.execution import PARTIAL, Event, Executions, Ledger, PodCreated, Timeline, Wake
from tfjob_controller.simulator.jobs import SECOND, SimJob, ms
from tfjob_controller.simulator.policies import SchedulingPolicy, SimulationSettings

_FIRST_BACKOFF_SECONDS = 1
_LONGEST_BACKOFF_SECONDS = 10


@dataclass(slots=True)
class _Pod:
    """`order` is that of its last attempt, or of its creation."""

    job: str
    member: str
    pod_set: PodSet
    order: int
    tried_ms: int = 0
    attempts: int = 0

    def turn(self, now: int) -> tuple[int, int]:
        """Who is tried first. Backing off is counted in whole seconds, and is not over within its last one."""
        if not self.attempts:
            return 0, self.order
        seconds = min(_FIRST_BACKOFF_SECONDS << min(self.attempts - 1, 8), _LONGEST_BACKOFF_SECONDS)
        until = self.tried_ms // SECOND + seconds
        return (until, self.order) if until >= now // SECOND else (0, self.order)


@dataclass(slots=True)
class _Partial:
    """A job of which not all pods have a node."""

    job: SimJob
    pod_sets: Mapping[str, PodSet]
    incarnation: int = 0
    node_of: dict[str, str] = field(default_factory=dict)


class SimulatedKubeScheduler:
    """See the module."""

    def __init__(
        self,
        timeline: Timeline[Event],
        executions: Executions,
        view: ClusterView,
        policy: SchedulingPolicy,
        settings: SimulationSettings,
    ) -> None:
        self.deadlock_ms = 0
        self.evictions = 0
        self._timeline = timeline
        self._executions = executions
        self._ledger: Ledger = executions.ledger
        self._view = view
        self._spread = not policy.locality
        self._settings = settings
        self._partial: dict[str, _Partial] = {}
        self._waiting: list[_Pod] = []
        self._new: list[_Pod] = []
        self._coming = 0
        self._order = 0
        self._room_came = False
        self._dead_since: int | None = None
        self._wake = 0

    # What happens

    def arrive(self, job: SimJob) -> None:
        pod_sets = {each.name: each for each in pod_sets_of(gang_of(job, elastic=False).spec)}
        self._partial[job.name] = _Partial(job, pod_sets)
        self._make_pods(self._partial[job.name])

    def ended(self, job: SimJob) -> None:
        self._view.unreserve(key(job))
        self._room_came = True

    def changed(self, name: str) -> None:
        """A job works on after a pause: nothing to kube-scheduler."""

    def told(self, event: PodCreated | Wake) -> None:
        if isinstance(event, PodCreated):
            self._coming -= 1
            partial = self._partial.get(event.job)
            if partial is not None and partial.incarnation == event.incarnation:
                self._order += 1
                pod_set = partial.pod_sets[kind_of(event.member)]
                self._new.append(_Pod(event.job, event.member, pod_set, self._order))
        elif event.number == self._wake and self._dead_since is not None:
            self._evict()

    def step(self) -> None:
        """Try all pods for which something may have changed."""
        now = self._timeline.now
        if self._room_came:
            line = sorted((*self._new, *self._waiting), key=lambda pod: pod.turn(now))
            self._waiting = []
        else:
            line = self._new
        self._new, self._room_came = [], False
        changed = self._try(line)
        self._start(changed)
        self._watch_for_deadlock()

    # How

    def _make_pods(self, partial: _Partial) -> None:
        job, pause = partial.job, ms(self._settings.pod_seconds)
        members = [f"{kind}-{index}" for kind, each in partial.pod_sets.items() for index in range(each.count)]
        for number, member in enumerate(members):
            self._coming += 1
            self._timeline.put(self._timeline.now + number * pause, PodCreated(job.name, member, partial.incarnation))

    def _try(self, line: Iterable[_Pod]) -> list[str]:
        """The jobs that have got a node for one pod more. Room only shrinks meanwhile."""
        now, hopeless, changed = self._timeline.now, set[PodSet](), dict[str, None]()
        for pod in line:
            node = None if pod.pod_set in hopeless else select_node(self._view, pod.pod_set, spread=self._spread)
            if node is None:
                hopeless.add(pod.pod_set)
                self._order += 1
                pod.order, pod.tried_ms, pod.attempts = self._order, now, pod.attempts + 1
                self._waiting.append(pod)
                continue
            partial = self._partial[pod.job]
            requests = requests_by_kind([pod.pod_set])
            self._view.reserve(key(partial.job), {pod.member: node}, requests, attempt=partial.incarnation)
            partial.node_of[pod.member] = node
            changed[pod.job] = None
        return list(changed)

    def _start(self, names: Iterable[str]) -> None:
        for name in names:
            partial = self._partial[name]
            if len(partial.node_of) == partial.job.pods:
                del self._partial[name]
                self._executions.start(partial.job, partial.node_of)
            else:
                self._ledger.hold(self._timeline.now, name, gpus_by_node(partial.job, partial.node_of), PARTIAL)

    # Deadlocks

    def _is_stuck(self) -> bool:
        return not self._executions.running and not self._coming and any(map(_holds_gpus, self._partial.values()))

    def _watch_for_deadlock(self) -> None:
        now = self._timeline.now
        if self._dead_since is None and self._is_stuck():
            self._dead_since = now
            self._set_alarm()
        elif self._dead_since is not None and self._executions.running:
            self.deadlock_ms += now - self._dead_since
            self._dead_since = None
            self._wake += 1

    def _set_alarm(self) -> None:
        self._wake += 1
        self._timeline.put(self._timeline.now + ms(self._settings.deadlock_timeout_seconds), Wake(self._wake))

    def _evict(self) -> None:
        """By hand: the youngest of those that hold what the others lack. Its pods are made anew, and come last."""
        holders = [each for each in self._partial.values() if _holds_gpus(each)]
        partial = max(holders, key=lambda each: (each.job.arrival_ms, each.job.name))
        name, now = partial.job.name, self._timeline.now
        self._ledger.note(now, "evict", name, len(partial.node_of), list(set(partial.node_of.values())))
        self._ledger.release(now, name)
        self._view.unreserve(key(partial.job))
        self._waiting = [pod for pod in self._waiting if pod.job != name]
        partial.node_of = {}
        partial.incarnation += 1
        self.evictions += 1
        self._room_came = True
        self._make_pods(partial)
        self._set_alarm()


def _holds_gpus(partial: _Partial) -> bool:
    return bool(gpus_by_node(partial.job, partial.node_of))


def select_node(view: ClusterView, pod_set: PodSet, *, spread: bool, exclude: Set[str] = frozenset()) -> str | None:
    """None if no node has room for it but those that are to `exclude`."""
    best: tuple[float, str] | None = None
    for group in view.candidates(pod_set.node_filter).groups.values():
        room = next(iter(group.values()))
        if not pod_set.capacity(room.free):
            continue
        share = room.free["cpu"] / room.allocatable["cpu"]
        score = -share if spread else share
        if best is not None and score > best[0]:
            continue
        first = min((name for name in group if name not in exclude), default=None)
        if first is not None:
            best = (score, first) if best is None else min(best, (score, first))
    return None if best is None else best[1]


def reserve_spread(
    view: ClusterView, key: str, pod_sets: Iterable[PodSet], members: Iterable[str], attempt: int
) -> dict[str, str] | None:
    """Nodes for these members, one by one, reserved; None, and nothing is reserved, if one finds no room."""
    of_kind = {each.name: each for each in pod_sets}
    node_of: dict[str, str] = {}
    for member in members:
        pod_set = of_kind[kind_of(member)]
        node = select_node(view, pod_set, spread=True)
        if node is None:
            for placed in node_of:
                view.unreserve_member(key, placed)
            return None
        view.reserve(key, {member: node}, requests_by_kind([pod_set]), attempt=attempt)
        node_of[member] = node
    return node_of
