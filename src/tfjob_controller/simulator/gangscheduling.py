"""Jobs as gangs, by the live rules: who starts is `scheduling.decide`'s to say, where `scheduling.placement`'s, and who
is resized `scheduling.scaling`'s. Nothing here decides anything but where pods go without locality (`spreading`).

Theory of operation. As in the extender's admission loop, in each step: wishes to resize are computed; members that a
running gang lacks get a node if there is one; the queue is decided on, and who is admitted has its room. What takes
time between programs there takes none here: a wish is followed at once, and the step is repeated until nothing changes.
Gangs are the same objects as in the API server, with the fields that their owner and the gang scheduler would write.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from tfjob_controller.api.gang import BOUND, Gang, Member, kind_of, placed_nodes, wanted_members
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.autoscaling import autoscaler
from tfjob_controller.scheduling.autoscaling.elasticgang import (
    AutoscalingPolicy,
    ElasticGang,
    ResizePlan,
    ResizeRequest,
    elastic_gang_of,
    preferred_nodes,
)
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import AdmissionDecider, AdmissionPolicy, Admit, Unschedulable
from tfjob_controller.scheduling.placement import Placement, find_member_node
from tfjob_controller.scheduling.podsets import PodSet, pod_sets_of, requests_by_kind
from tfjob_controller.scheduling.queue import NominatedNodes, queue_order
from tfjob_controller.simulator.cluster import BEGINNING, gang_of, key, wall_time
from tfjob_controller.simulator.execution import Event, Executions, PodCreated, Timeline, Wake
from tfjob_controller.simulator.jobs import SimJob, ms
from tfjob_controller.simulator.podscheduling import reserve_spread, select_node
from tfjob_controller.simulator.policies import SchedulingPolicy, SimulationSettings
from tfjob_controller.util.timestamps import format_micro_time

# Who is admitted sooner has not waited: as the extender counts it.
_AT_ONCE_MS = 5000


class SimulatedGangScheduler:
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
        self._view = view
        self._policy = policy
        self._settings = settings
        self._decider = AdmissionDecider(
            view, AdmissionPolicy(starvation_timeout_seconds=settings.starvation_timeout_seconds)
        )
        self._scale_policy = AutoscalingPolicy(settings.scale_down_after_seconds, settings.scale_up_after_seconds)
        self._jobs: dict[str, SimJob] = {}
        self._waiting: dict[str, Gang] = {}
        self._bound: dict[str, Gang] = {}
        # Bound gangs that lack members.
        self._lacking: set[str] = set()
        # What the rules of scaling see of the bound gangs; made anew for those that are stale.
        self._elastic: dict[str, ElasticGang] = {}
        self._stale: set[str] = set()
        self._waited_at: datetime | None = None
        self._due_ms: int | None = None

    # What happens

    def arrive(self, job: SimJob) -> None:
        self._jobs[key(job)] = job
        self._waiting[key(job)] = gang_of(job, elastic=self._policy.autoscaling)

    def ended(self, job: SimJob) -> None:
        self._view.unreserve(key(job))
        for known in (self._jobs, self._bound, self._elastic):
            known.pop(key(job), None)
        for keys in (self._lacking, self._stale):
            keys.discard(key(job))

    def changed(self, name: str) -> None:
        """A job works on after a pause."""
        self._stale.add(key(self._executions.running[name].job))

    def told(self, event: PodCreated | Wake) -> None:
        """The step that follows looks at everything anyway."""

    def step(self) -> None:
        now = wall_time(self._timeline.now)
        if not self._policy.autoscaling:
            self._admit(now, None)
            return
        plan = self._plan(now)
        while self._follow(plan, now) or self._fill(plan.nominated, now) or self._admit(now, plan.nominated):
            plan = self._plan(now)
        self._wake_at(plan.recheck_time)

    # The queue

    def _admit(self, now: datetime, kept: NominatedNodes | None) -> bool:
        """Whether any gang has started."""
        if not self._waiting:
            return False
        decisions = self._decider.decide(list(self._waiting.values()), now, kept)
        admitted = [each for each in decisions if isinstance(each, Admit)]
        for decision in decisions:
            if isinstance(decision, Unschedulable):
                raise RuntimeError(f"{decision.gang_key} can never start: {decision.message}")
        for decision in admitted:
            self._bind(decision, self._nodes_of(decision), now)
        return bool(admitted)

    def _nodes_of(self, admit: Admit) -> Mapping[str, str]:
        """Those of the live placement; without locality spread, if all of it fits so."""
        nodes, gang_key = admit.placement.node_of, admit.gang_key
        if self._policy.locality:
            return nodes
        self._view.unreserve(gang_key)
        pod_sets = pod_sets_of(self._waiting[gang_key].spec)
        # As pods would be made, kind by kind.
        members = [f"{each.name}-{index}" for each in pod_sets for index in range(admit.placement.counts[each.name])]
        spread = reserve_spread(self._view, gang_key, pod_sets, members, admit.attempt)
        if spread is None:
            self._view.reserve(gang_key, nodes, requests_by_kind(pod_sets), attempt=admit.attempt)
        return nodes if spread is None else spread

    def _bind(self, admit: Admit, node_of: Mapping[str, str], now: datetime) -> None:
        gang_key = admit.gang_key
        gang, job = self._waiting.pop(gang_key), self._jobs[gang_key]
        if self._timeline.now - job.arrival_ms >= _AT_ONCE_MS:
            self._waited_at = now
        status = replace(gang.status, phase=BOUND, attempt=admit.attempt, bound_time=format_micro_time(now))
        self._keep(gang_key, replace(gang, status=status), node_of)
        self._executions.start(job, node_of, len(node_of) * ms(self._settings.pod_seconds))

    def _keep(self, gang_key: str, gang: Gang, node_of: Mapping[str, str]) -> None:
        placement = Placement(node_of, {}).by_node()
        self._bound[gang_key] = replace(gang, status=replace(gang.status, placement=placement))
        self._stale.add(gang_key)
        is_whole = len(node_of) == sum(member.count for member in gang.spec.members)
        (self._lacking.discard if is_whole else self._lacking.add)(gang_key)

    # Resizing

    def _plan(self, now: datetime) -> ResizePlan:
        if not self._policy.autoscaling:
            return ResizePlan()
        queue = queue_order(self._waiting.values())
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

    def _follow(self, plan: ResizePlan, now: datetime) -> bool:
        """What the owner of the gang, and then the gang scheduler, do about a wish. Whether there was one."""
        for resize in plan.resizes:
            gang = self._bound[resize.key]
            members = tuple(_counting(each, resize) for each in gang.spec.members)
            spec, status = replace(gang.spec, members=members), replace(gang.status, leaving=resize.leaving)
            self._settle(replace(gang, spec=spec, status=status), plan.nominated, now, resize.reason)
        return bool(plan.resizes)

    def _fill(self, kept: NominatedNodes | None, now: datetime) -> bool:
        """Members that had no room when their gang started come when there is some. Whether any came."""
        came = False
        # Workers with so many GPUs of which none fits: hundreds of gangs need not each find that out.
        hopeless: set[int] = set()
        for each in sorted(self._lacking):
            gpus = self._jobs[each].gpus
            if gpus not in hopeless and self._settle(self._bound[each], kept, now, "there is room for it"):
                came = True
            elif each in self._lacking:
                hopeless.add(gpus)
        return came

    def _settle(self, gang: Gang, kept: NominatedNodes | None, now: datetime, reason: str) -> bool:
        """Give a bound gang the members that it should have, as far as there is room. Whether they are others now."""
        gang_key = key_of(gang)
        before = placed_nodes(gang.status)
        wanted = wanted_members(gang)
        for member in before.keys() - set(wanted):
            self._view.unreserve_member(gang_key, member)
        nodes = {member: before[member] for member in wanted if member in before}
        nodes |= self._added(gang, [member for member in wanted if member not in before], kept)
        if nodes == before:
            if gang is not self._bound[gang_key]:
                self._keep(gang_key, gang, before)
            return False
        status = replace(gang.status, leaving=(), last_resize_time=format_micro_time(now))
        self._keep(gang_key, replace(gang, status=status), nodes)
        self._executions.resize(gang.metadata.name, nodes, ms(self._settings.pause_seconds), reason)
        return True

    def _added(self, gang: Gang, members: list[str], kept: NominatedNodes | None) -> dict[str, str]:
        """Nodes for members that come; none for those for which there is no room."""
        found: dict[str, str] = {}
        pod_sets = {each.name: each for each in pod_sets_of(gang.spec)} if members else {}
        for member in members:
            pod_set = pod_sets[kind_of(member)]
            node = self._node_for(
                pod_set, placed_nodes(gang.status) | found, frozenset() if kept is None else kept.nodes
            )
            if node is None:
                break
            requests = requests_by_kind([pod_set])
            self._view.reserve(key_of(gang), {member: node}, requests, attempt=gang.status.attempt)
            found[member] = node
        return found

    def _node_for(self, pod_set: PodSet, placed: Mapping[str, str], exclude: frozenset[str]) -> str | None:
        """Near its parameter servers, else near any of its own; without locality where there is most room."""
        if self._policy.locality:
            near, nearest = set(placed.values()), preferred_nodes(placed, pod_set.name)
            return find_member_node(self._view, pod_set, exclude, near=near, nearest=nearest)
        return select_node(self._view, pod_set, spread=True, exclude=exclude)

    def _wake_at(self, due: datetime | None) -> None:
        """Look again then, though nothing else may happen."""
        if due is None:
            return
        moment = -((BEGINNING - due) // timedelta(milliseconds=1))
        if self._due_ms != moment:
            self._due_ms = moment
            self._timeline.put(moment, Wake())


def _counting(member: Member, resize: ResizeRequest) -> Member:
    return replace(member, count=resize.target) if member.name == resize.kind else member
