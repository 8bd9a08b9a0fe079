"""Jobs as gangs, by the live rules: `decisions` selects which start, `placement` where, `autoscaler` which are resized.

Theory of operation. As in the gang scheduler's admission loop, each step plans resizes and preemptions, places members
that a running gang is missing, and decides on the queue. What takes time between programs takes none here: a request is
followed at once, and the step is repeated until nothing changes. Gangs are the same objects as in the API server, with
the fields that their owner and the gang scheduler would write. Nothing here decides anything, except where pods go
without locality (`podscheduling`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from tfjob_controller.api.gang import BOUND, WAITING, Gang, kind_of, placed_nodes, wanted_members
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.autoscaling import autoscaler
from tfjob_controller.scheduling.autoscaling.elasticgang import (
    AutoscalingPolicy,
    ElasticGang,
    ResizePlan,
    elastic_gang_of,
    preferred_nodes,
)
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import (
    AdmissionDecider,
    AdmissionPolicy,
    Admit,
    NominatedNodes,
    QueuedGang,
    Unschedulable,
)
from tfjob_controller.scheduling.fairshare import NamespaceShares
from tfjob_controller.scheduling.placement import find_member_node, placement_by_node
from tfjob_controller.scheduling.podsets import PodSet, pod_sets_of, requests_by_kind
from tfjob_controller.scheduling.preemption import (
    Claim,
    PreemptionDecider,
    PreemptionPlan,
    PreemptionPolicy,
    RunningGang,
)
from tfjob_controller.simulator.cluster import BEGINNING, gang_of, key, wall_time
from tfjob_controller.simulator.execution import Executions, JobDue, PodCreated, Timeline, Wake
from tfjob_controller.simulator.model import SchedulingPolicy, SimJob, SimulationSettings, ms
from tfjob_controller.simulator.podscheduling import reserve_spread, select_node
from tfjob_controller.util.timestamps import format_micro_time, parse_time_or_none

# A gang that is admitted sooner has not waited: as the gang scheduler counts it.
_IMMEDIATE_MS = 5000


class SimulatedGangScheduler:
    """Starts and resizes the simulated jobs as gangs."""

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
        self._view = view
        self._policy = policy
        self._settings = settings
        admission = AdmissionPolicy((), settings.starvation_timeout_seconds, is_fair=policy.fair)
        self._decider = AdmissionDecider(view, admission, shares=NamespaceShares(view) if policy.fair else None)
        self._preemption_policy = PreemptionPolicy(settings.preempt_after_seconds, settings.preemption_grace_seconds)
        # For whom gangs were preempted that wait again.
        self._claims: dict[str, Claim] = {}
        self._scale_policy = AutoscalingPolicy(settings.scale_down_after_seconds, settings.scale_up_after_seconds)
        self._jobs: dict[str, SimJob] = {}
        self._waiting: dict[str, Gang] = {}
        self._bound: dict[str, Gang] = {}
        # Bound gangs without all their members.
        self._incomplete: set[str] = set()
        # The bound gangs as the autoscaling rules see them; computed again for stale ones.
        self._elastic: dict[str, ElasticGang] = {}
        self._stale: set[str] = set()
        self._waited_at: datetime | None = None
        self._due_ms: int | None = None

    # Events and steps

    def on_arrival(self, job: SimJob) -> None:
        self._jobs[key(job)] = job
        self._waiting[key(job)] = gang_of(job, elastic=self._policy.autoscaling)

    def on_end(self, job: SimJob) -> None:
        self._view.unreserve(key(job))
        for known in (self._jobs, self._bound, self._elastic):
            known.pop(key(job), None)
        for keys in (self._incomplete, self._stale):
            keys.discard(key(job))
        self._claims.pop(key(job), None)

    def on_event(self, event: JobDue | PodCreated | Wake) -> None:
        """A job may continue after a pause; everything else is seen by the step that follows."""
        if isinstance(event, JobDue) and event.job in self._executions.running:
            self._stale.add(key(self._executions.running[event.job].job))

    def step(self) -> None:
        now = wall_time(self._timeline.now)
        if not self._policy.autoscaling and not self._policy.preemption:
            self._admit(now, None)
            return
        plan, preemption = self._plan(now), self._plan_preemption(now)
        while self._has_progress(plan, preemption, now):
            plan, preemption = self._plan(now), self._plan_preemption(now)
        times = [each for each in (plan.recheck_time, preemption.recheck_time) if each is not None]
        self._wake_at(min(times, default=None))

    def _has_progress(self, plan: ResizePlan, preemption: PreemptionPlan, now: datetime) -> bool:
        """Returns whether the plans, missing members or the queue changed anything, tried in this order."""
        nominated = preemption.nominated or plan.nominated
        return (
            self._apply_requests(plan, now)
            or self._preempt(preemption, now)
            or self._add_missing_members(nominated, now)
            or self._admit(now, nominated)
        )

    # The queue

    def _admit(self, now: datetime, nominated: NominatedNodes | None) -> bool:
        """Returns whether any gang has started."""
        if not self._waiting:
            return False
        decisions = self._decider.decide(list(self._waiting.values()), now, nominated)
        for decision in decisions:
            if isinstance(decision, Unschedulable):
                raise RuntimeError(f"{decision.gang_key} can never start: {decision.message}")
            if isinstance(decision, Admit):
                self._bind(decision, self._nodes_of(decision), now)
        return any(isinstance(each, Admit) for each in decisions)

    def _nodes_of(self, admit: Admit) -> Mapping[str, str]:
        """Returns the live placement; without locality one that is spread, if all pods fit that way."""
        nodes, gang_key = admit.placement.node_of, admit.gang_key
        if self._policy.locality:
            return nodes
        self._view.unreserve(gang_key)
        pod_sets = pod_sets_of(self._waiting[gang_key].spec)
        # In the order in which pods are created, kind by kind.
        members = [
            f"{pod_set.name}-{index}" for pod_set in pod_sets for index in range(admit.placement.counts[pod_set.name])
        ]
        spread = reserve_spread(self._view, gang_key, pod_sets, members, admit.attempt)
        if spread is None:
            self._view.reserve(gang_key, nodes, requests_by_kind(pod_sets), attempt=admit.attempt)
        return nodes if spread is None else spread

    def _bind(self, admit: Admit, node_of: Mapping[str, str], now: datetime) -> None:
        gang_key = admit.gang_key
        gang, job = self._waiting.pop(gang_key), self._jobs[gang_key]
        self._claims.pop(gang_key, None)
        self._claims = {key: each for key, each in self._claims.items() if each.preemptor != gang_key}
        if self._timeline.now - job.arrival_ms >= _IMMEDIATE_MS:
            self._waited_at = now
        status = replace(gang.status, phase=BOUND, attempt=admit.attempt, bound_time=format_micro_time(now))
        self._record(gang_key, replace(gang, status=status), node_of)
        self._executions.start(job, node_of, len(node_of) * ms(self._settings.pod_seconds))

    def _record(self, gang_key: str, gang: Gang, node_of: Mapping[str, str]) -> None:
        placement = placement_by_node(node_of)
        self._bound[gang_key] = replace(gang, status=replace(gang.status, placement=placement))
        self._stale.add(gang_key)
        is_whole = len(node_of) == sum(member.count for member in gang.spec.members)
        (self._incomplete.discard if is_whole else self._incomplete.add)(gang_key)

    # Preemption

    def _plan_preemption(self, now: datetime) -> PreemptionPlan:
        if not self._policy.preemption or not self._waiting:
            return PreemptionPlan()
        queue = self._decider.ordered(self._waiting.values())
        decider = PreemptionDecider(
            self._view,
            [self._running_gang(key, gang) for key, gang in self._bound.items()],
            self._claims.values(),
            now,
            self._preemption_policy,
            priority_of=lambda gang: gang.spec.priority,
            could_shrink=lambda queued: self._could_shrink_for(queued, now),
        )
        plan = decider.ongoing_plan(queue) if self._claims else PreemptionPlan()
        return plan if plan.nominated is not None else decider.new_plan(queue)

    def _running_gang(self, gang_key: str, gang: Gang) -> RunningGang:
        saved = wall_time(self._executions.saved_ms(gang.metadata.name))
        bound = parse_time_or_none(gang.status.bound_time)
        return RunningGang(gang_key, gang.spec.priority, len(placed_nodes(gang.status)), bound, saved)

    def _could_shrink_for(self, queued: QueuedGang, now: datetime) -> bool:
        if not self._policy.autoscaling:
            return False
        return autoscaler.could_shrink_for(self._view, queued, self._running(), now, self._scale_policy)

    def _preempt(self, plan: PreemptionPlan, now: datetime) -> bool:
        """Does what the owners of the victims and then the gang scheduler do. Returns whether there were any."""
        for gang_key in plan.victims:
            gang = self._bound.pop(gang_key)
            self._view.unreserve(gang_key)
            self._executions.preempt(gang.metadata.name, f"for {plan.preemptor}")
            status = replace(gang.status, phase=WAITING, placement=(), bound_time=None)
            self._waiting[gang_key] = replace(gang, status=status)
            self._claims[gang_key] = Claim(plan.preemptor, now)
            self._elastic.pop(gang_key, None)
            for keys in (self._incomplete, self._stale):
                keys.discard(gang_key)
        return bool(plan.victims)

    # Resizing

    def _plan(self, now: datetime) -> ResizePlan:
        if not self._policy.autoscaling:
            return ResizePlan()
        queue = self._decider.ordered(self._waiting.values())
        return autoscaler.plan_resizes(
            self._view, queue, self._running(), now, self._scale_policy, waited_at=self._waited_at
        )

    def _running(self) -> list[ElasticGang]:
        for gang_key in self._stale:
            gang = self._bound[gang_key]
            elastic = elastic_gang_of(gang, is_changing=not self._executions.running[gang.metadata.name].rate)
            if elastic is not None:
                self._elastic[gang_key] = elastic
        self._stale.clear()
        return list(self._elastic.values())

    def _apply_requests(self, plan: ResizePlan, now: datetime) -> bool:
        """Does what the owner of the gang and then the gang scheduler do about a request. Returns whether there was
        one.
        """
        for resize in plan.resizes:
            gang = self._bound[resize.key]
            members = tuple(
                replace(member, count=resize.target) if member.name == resize.kind else member
                for member in gang.spec.members
            )
            spec, status = replace(gang.spec, members=members), replace(gang.status, leaving=resize.leaving)
            self._update_members(replace(gang, spec=spec, status=status), plan.nominated, now, resize.reason)
        return bool(plan.resizes)

    def _add_missing_members(self, nominated: NominatedNodes | None, now: datetime) -> bool:
        """Places members that had no capacity when their gang started. Returns whether any was placed."""
        has_changed = False
        # Numbers of GPUs for which no worker fits, so that it is tried once for hundreds of gangs.
        failed: set[int] = set()
        for each in sorted(self._incomplete):
            gpus = self._jobs[each].gpus
            if gpus not in failed and self._update_members(self._bound[each], nominated, now, "capacity is available"):
                has_changed = True
            elif each in self._incomplete:
                failed.add(gpus)
        return has_changed

    def _update_members(self, gang: Gang, nominated: NominatedNodes | None, now: datetime, reason: str) -> bool:
        """Gives a bound gang the members that it should have, as far as they fit. Returns whether they changed."""
        gang_key = key_of(gang)
        before = placed_nodes(gang.status)
        wanted = wanted_members(gang)
        for member in before.keys() - set(wanted):
            self._view.unreserve_member(gang_key, member)
        nodes = {member: before[member] for member in wanted if member in before}
        nodes |= self._place_members(gang, [member for member in wanted if member not in before], nominated)
        if nodes == before:
            if gang is not self._bound[gang_key]:
                self._record(gang_key, gang, before)
            return False
        status = replace(gang.status, leaving=(), last_resize_time=format_micro_time(now))
        self._record(gang_key, replace(gang, status=status), nodes)
        self._executions.resize(gang.metadata.name, nodes, ms(self._settings.pause_seconds), reason)
        return True

    def _place_members(self, gang: Gang, members: list[str], nominated: NominatedNodes | None) -> dict[str, str]:
        """Returns nodes for new members, up to the first one that does not fit."""
        found: dict[str, str] = {}
        pod_sets = {each.name: each for each in pod_sets_of(gang.spec)} if members else {}
        exclude = frozenset[str]() if nominated is None else nominated.nodes
        for member in members:
            pod_set = pod_sets[kind_of(member)]
            node = self._node_for(pod_set, placed_nodes(gang.status) | found, exclude)
            if node is None:
                break
            requests = requests_by_kind([pod_set])
            self._view.reserve(key_of(gang), {member: node}, requests, attempt=gang.status.attempt)
            found[member] = node
        return found

    def _node_for(self, pod_set: PodSet, placed: Mapping[str, str], exclude: frozenset[str]) -> str | None:
        """Near its parameter servers, otherwise near its other members; without locality on the emptiest node."""
        if self._policy.locality:
            near, nearest = set(placed.values()), preferred_nodes(placed, pod_set.name)
            return find_member_node(self._view, pod_set, exclude, near=near, nearest=nearest)
        return select_node(self._view, pod_set, spread=True, exclude=exclude)

    def _wake_at(self, recheck_time: datetime | None) -> None:
        """Requests a step then, even if nothing else happens."""
        if recheck_time is None:
            return
        moment = -((BEGINNING - recheck_time) // timedelta(milliseconds=1))
        if self._due_ms != moment:
            self._due_ms = moment
            self._timeline.put(moment, Wake())
