"""Jobs under kube-scheduler alone, pod by pod: the baseline. Nothing of it belongs to the gang scheduler's rules.

Theory of operation. A job's pods are created one after another and queue. kube-scheduler takes them by the time of
their last attempt; a pod that does not fit waits until capacity is freed and is then tried again, those that still back
off (1 s, doubled by each attempt up to 10 s) after the others, by the second in which the backoff ends. So jobs that
are created at the same time, or whose pods back off, take capacity alternately, and each can hold a part. A job works
once all its pods have a node.

If no job works, no pod is still to be created, and jobs hold GPUs, that is a *deadlock*: Kubernetes would leave it so
forever. After `deadlock_timeout_seconds` the pods of the youngest job that holds GPUs are deleted by hand and
recreated.

kube-scheduler's scores: of the nodes with capacity, the one of which least is requested (its default, NodeResourcesFit
with LeastAllocated), or most (MostAllocated). It scores CPU and memory, not GPUs; here CPU, of which workers and
parameter servers request equal shares everywhere. Between equal nodes kube-scheduler chooses at random; here the first
by name, so that runs can be repeated. Its other default scores are equal on nodes that differ only in what they run.

In kube-scheduler's favour: it takes no time, and all pods of a job that has ended free their capacity at once.

Source: kubernetes 1.36 pkg/scheduler/backend/queue (scheduling_queue.go, backoff_queue.go; PopFromBackoffQ is on),
plugins/noderesources (fit.go: any deleted pod is a reason to try again; least_allocated.go, most_allocated.go) and
apis/config/v1/default_plugins.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from tfjob_controller.api.gang import kind_of
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.podsets import PodSet, pod_sets_of, requests_by_kind
from tfjob_controller.simulator.cluster import gang_of, gpus_by_node, key
from tfjob_controller.simulator.execution import PARTIAL, Executions, JobDue, PodCreated, Timeline, Wake
from tfjob_controller.simulator.model import SECOND, SchedulingPolicy, SimJob, SimulationSettings, ms

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

    def queue_key(self, now: int) -> tuple[int, int]:
        """Orders the attempts. Backoff is counted in whole seconds, and is not over within its last one."""
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
    """Starts the simulated jobs pod by pod, as kube-scheduler does."""

    def __init__(
        self,
        timeline: Timeline,
        executions: Executions,
        view: ClusterView,
        policy: SchedulingPolicy,
        settings: SimulationSettings,
    ) -> None:
        self.deadlock_ms = 0
        self.evictions = 0
        self._timeline = timeline
        self._executions = executions
        self._ledger = executions.ledger
        self._view = view
        self._spread = not policy.locality
        self._settings = settings
        self._partial: dict[str, _Partial] = {}
        self._waiting: list[_Pod] = []
        self._new: list[_Pod] = []
        self._pods_to_create = 0
        self._order = 0
        self._has_freed_capacity = False
        self._deadlocked_since: int | None = None
        self._wake = 0

    # Events and steps

    def on_arrival(self, job: SimJob) -> None:
        pod_sets = {pod_set.name: pod_set for pod_set in pod_sets_of(gang_of(job, elastic=False).spec)}
        self._partial[job.name] = _Partial(job, pod_sets)
        self._create_pods(self._partial[job.name])

    def on_end(self, job: SimJob) -> None:
        self._view.unreserve(key(job))
        self._has_freed_capacity = True

    def on_event(self, event: JobDue | PodCreated | Wake) -> None:
        if isinstance(event, PodCreated):
            self._pods_to_create -= 1
            partial = self._partial.get(event.job)
            if partial is not None and partial.incarnation == event.incarnation:
                self._order += 1
                pod_set = partial.pod_sets[kind_of(event.member)]
                self._new.append(_Pod(event.job, event.member, pod_set, self._order))
        elif isinstance(event, Wake) and event.number == self._wake and self._deadlocked_since is not None:
            self._evict()

    def step(self) -> None:
        """Tries all pods for which something may have changed."""
        now = self._timeline.now
        if self._has_freed_capacity:
            line = sorted((*self._new, *self._waiting), key=lambda pod: pod.queue_key(now))
            self._waiting = []
        else:
            line = self._new
        self._new, self._has_freed_capacity = [], False
        changed = self._try(line)
        self._start(changed)
        self._check_deadlock()

    # Attempts

    def _create_pods(self, partial: _Partial) -> None:
        job, pause = partial.job, ms(self._settings.pod_seconds)
        members = [f"{kind}-{index}" for kind, each in partial.pod_sets.items() for index in range(each.count)]
        for number, member in enumerate(members):
            self._pods_to_create += 1
            self._timeline.put(self._timeline.now + number * pause, PodCreated(job.name, member, partial.incarnation))

    def _try(self, line: Iterable[_Pod]) -> list[str]:
        """Returns the jobs of which one more pod has a node. Capacity only shrinks meanwhile."""
        now, failed, changed = self._timeline.now, set[PodSet](), dict[str, None]()
        for pod in line:
            node = None if pod.pod_set in failed else select_node(self._view, pod.pod_set, spread=self._spread)
            if node is None:
                failed.add(pod.pod_set)
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
        is_idle = not self._executions.running and not self._pods_to_create
        return is_idle and any(map(_holds_gpus, self._partial.values()))

    def _check_deadlock(self) -> None:
        now = self._timeline.now
        if self._deadlocked_since is None and self._is_stuck():
            self._deadlocked_since = now
            self._schedule_eviction()
        elif self._deadlocked_since is not None and self._executions.running:
            self.deadlock_ms += now - self._deadlocked_since
            self._deadlocked_since = None
            self._wake += 1

    def _schedule_eviction(self) -> None:
        self._wake += 1
        self._timeline.put(self._timeline.now + ms(self._settings.deadlock_timeout_seconds), Wake(self._wake))

    def _evict(self) -> None:
        """Deletes the pods of the youngest job that holds GPUs, by hand; they are recreated, and come last."""
        holders = [each for each in self._partial.values() if _holds_gpus(each)]
        partial = max(holders, key=lambda each: (each.job.arrival_ms, each.job.name))
        name, now = partial.job.name, self._timeline.now
        self._ledger.record(now, "evict", name, len(partial.node_of), list(set(partial.node_of.values())))
        self._ledger.release(now, name)
        self._view.unreserve(key(partial.job))
        self._waiting = [pod for pod in self._waiting if pod.job != name]
        partial.node_of = {}
        partial.incarnation += 1
        self.evictions += 1
        self._has_freed_capacity = True
        self._create_pods(partial)
        self._schedule_eviction()


def _holds_gpus(partial: _Partial) -> bool:
    return bool(gpus_by_node(partial.job, partial.node_of))


def select_node(view: ClusterView, pod_set: PodSet, *, spread: bool, exclude: Set[str] = frozenset()) -> str | None:
    """Returns the node for a single pod; None if no node outside `exclude` has the capacity."""
    best: tuple[float, str] | None = None
    for group in view.candidates(pod_set.node_filter).groups.values():
        info = next(iter(group.values()))
        if not pod_set.capacity(info.free):
            continue
        share = info.free["cpu"] / info.allocatable["cpu"]
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
    """Reserves nodes for these members one by one, or none at all if one does not fit (None)."""
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
