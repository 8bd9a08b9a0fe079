"""The queue of pending gangs and one scheduling cycle over it: which gangs are admitted and where, and why others wait.

The queue is ordered by priority, then by the time since which a gang is queued (`status.queuedTime`, which a failed
attempt does not reset, or else its creation), then by name. In fair order (fairshare.py) the shares of the namespaces
come between priority and time. A gang that backs off after a failed attempt (`status.requeueTime`) keeps its position
but is not considered. A stream of gangs of a higher priority can hold back a lower one forever; among gangs of equal
priority none starves.

Theory of operation. `AdmissionDecider.decide` takes the gangs in queue order. It places each one on the free capacity
of the view and reserves the capacity in the view at once, so that the next gang sees what is left: two gangs can never
each hold a half. A gang that does not fit is skipped, and younger ones may start (backfill). But a gang that has waited
for `starvation_timeout_seconds` *holds* every node that it could use, and no gang behind it in the queue may be placed
there. A gang holds nothing if it would not fit even without any other gang (other pods are in its way, and holding
would not help), or while it backs off. Nodes that are *nominated* for a gang, since others shrink for it (autoscaling),
are for no other gang, whatever its priority.

A gang for which the ResourceQuotas of its namespace leave too little (quota.py) waits, and holds nothing.

A cycle must be cheap, since it runs after every event. Gangs with equal pod sets share one shape, which has an estimate
of how much of it would fit, and remembers that a placement was tried in vain until capacity is freed.

Threads: as the view's, under the same lock. The time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from tfjob_controller.api.gang import Gang, GangSpec, Missing
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.estimates import (
    CapacityEstimate,
    HypotheticalCapacity,
    exceeds_capacity_message,
    missing_resources,
    pending_message,
)
from tfjob_controller.scheduling.fairshare import NamespaceShares, in_fair_order
from tfjob_controller.scheduling.packing import NodeGroup
from tfjob_controller.scheduling.placement import NodePredicate, Placement, place
from tfjob_controller.scheduling.podsets import PodSet, pod_sets_of, requests_by_kind
from tfjob_controller.scheduling.quota import NamespaceQuotas, QuotaShortage
from tfjob_controller.util.timestamps import parse_time_or_none

EXCEEDS_CLUSTER_CAPACITY = "ExceedsClusterCapacity"
INVALID_RESOURCES = "InvalidResources"
BACKING_OFF = "backs off after a failed attempt"
HELD_BACK = "there may be capacity, but gangs that have waited longer come first"

# The longest backoff after a failed attempt; a longer one was written by another clock or by hand, and is ignored.
MAX_BACKOFF_SECONDS = 60.0
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QueuedGang:
    """A gang in the queue, and the time since which it is queued."""

    key: str
    gang: Gang
    since: datetime

    def is_backing_off(self, now: datetime) -> bool:
        """Whether it backs off after a failed attempt."""
        return backoff_seconds(self.gang, now) > 0

    def waiting_seconds(self, now: datetime) -> float:
        """Returns how long it has been queued; never negative, even if clocks differ."""
        return max((now - self.since).total_seconds(), 0.0)


@dataclass(frozen=True, slots=True)
class NominatedNodes:
    """Nodes that are nominated for a gang until it has started: no other gang may be placed on them.

    `released` is, by node, the capacity that other gangs have begun to release for it; pods without a gang may not use
    it either.
    """

    gang_key: str
    nodes: frozenset[str]
    released: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def backoff_seconds(gang: Gang, now: datetime) -> float:
    """Returns how long the gang still backs off after a failed attempt; 0 if it does not."""
    until = parse_time_or_none(gang.status.requeue_time)
    left = (until - now).total_seconds() if until is not None else 0.0
    return left if 0 < left <= MAX_BACKOFF_SECONDS else 0.0


def queue_order(gangs: Iterable[Gang]) -> list[QueuedGang]:
    """Returns the pending gangs in order of priority and age; suspended gangs are not queued."""
    waiting = [QueuedGang(key_of(gang), gang, _since(gang)) for gang in gangs if not gang.spec.suspend]
    waiting.sort(key=lambda queued: (-queued.gang.spec.priority, queued.since, queued.key))
    return waiting


def _since(gang: Gang) -> datetime:
    return (
        parse_time_or_none(gang.status.queued_time)
        or parse_time_or_none(gang.metadata.creation_timestamp)
        or _BEGINNING
    )


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """`topology_keys` are node labels, the widest domain first. `is_fair`: the queue is in fair order."""

    topology_keys: tuple[str, ...] = ()
    starvation_timeout_seconds: float = 30.0
    is_fair: bool = False


@dataclass(frozen=True, slots=True)
class Admit:
    """The gang fits, and its capacity is reserved for this attempt."""

    gang_key: str
    placement: Placement
    attempt: int


@dataclass(frozen=True, slots=True)
class Pending:
    """The gang does not start now. `position` counts from 1 over all pending gangs.

    `may_fit`: as far as is known without a placement there is capacity, but the gang backs off, or the capacity is held
    for another.
    """

    gang_key: str
    position: int
    missing: tuple[Missing, ...]
    message: str
    may_fit: bool = False
    is_over_quota: bool = False
    """The quotas of its namespace do not allow it now."""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The gang would not fit an empty cluster, or its spec is invalid."""

    gang_key: str
    reason: str
    message: str


Decision: TypeAlias = Admit | Pending | Unschedulable


class _GangShape:
    """The shared state of gangs with equal pod sets."""

    def __init__(self, view: ClusterView, hypothetical: HypotheticalCapacity, pod_sets: tuple[PodSet, ...]) -> None:
        self.pod_sets = pod_sets
        self._view = view
        self._hypothetical = hypothetical
        self._estimate = CapacityEstimate(view, pod_sets)
        # Whether a placement on all nodes failed: it is not tried again until capacity is freed.
        self.is_hopeless = False
        # The view's version (or the snapshot's number), and the answer for it.
        self._exceeds = (-1, False)
        self._could_fit = (-1, True)
        self._message: tuple[tuple[Missing, ...], str] = ((), "")
        self._message_version = -1
        self._message_fingerprint: tuple[int, ...] = ()

    def may_fit(self) -> bool:
        """Returns False if its estimate is too small, or if a placement has failed and no capacity was freed since."""
        self._estimate.refresh()
        if self._estimate.has_grown:
            self._estimate.has_grown = False
            self.is_hopeless = False
        return not self.is_hopeless and self._estimate.is_sufficient

    def exceeds_cluster(self) -> bool:
        version = self._view.nodes_version
        if self._exceeds[0] != version:
            self._exceeds = version, not self._hypothetical.fits_empty(self.pod_sets)
        return self._exceeds[1]

    def could_fit_without_gangs(self) -> bool:
        """True until it is evaluated; the answer may be that of an earlier cycle."""
        snapshot = self._hypothetical.snapshot
        if self._could_fit[0] != snapshot and self._hypothetical.may_evaluate():
            self._could_fit = snapshot, self._hypothetical.fits_without_gangs(self.pod_sets)
        return self._could_fit[1]

    def usable_groups(self) -> Sequence[NodeGroup]:
        """Returns the nodes that any of its pods could ever run on."""
        return [
            group
            for group in self._hypothetical.groups_when_empty(self.pod_sets)
            if any(
                accepts and pod_set.min_count and pod_set.capacity(group.free)
                for accepts, pod_set in zip(group.accepts, self.pod_sets, strict=True)
            )
        ]

    def message(self) -> tuple[tuple[Missing, ...], str]:
        """Returns what is missing; the same objects as long as the situation is the same."""
        if self._message_version != self._view.version:
            self._message_version = self._view.version
            fingerprint = (self._view.nodes_version, *self._estimate.fingerprint())
            if self._message_fingerprint != fingerprint:
                estimates = self._estimate.estimates
                message = pending_message(self.pod_sets, estimates, self._hypothetical.rejections)
                self._message = missing_resources(self.pod_sets, estimates), message
                self._message_fingerprint = fingerprint
        return self._message


class AdmissionDecider:
    """Makes decisions, and remembers between cycles what has not changed. With `shares` the queue is in fair order."""

    def __init__(
        self,
        view: ClusterView,
        policy: AdmissionPolicy,
        quotas: NamespaceQuotas | None = None,
        shares: NamespaceShares | None = None,
    ) -> None:
        self._view = view
        self._policy = policy
        self._shares = shares
        # In fair order, the gang of each priority that holds nodes: it stays in front until it starts.
        self._turns: dict[int, str] = {}
        self._quotas = quotas or NamespaceQuotas(lambda namespace: ())
        self._hypothetical = HypotheticalCapacity(view)
        self._shapes: dict[tuple[PodSet, ...], _GangShape] = {}
        self._shape_by_gang: dict[str, tuple[GangSpec, _GangShape | str]] = {}

    def decide(self, gangs: Iterable[Gang], now: datetime, nominated: NominatedNodes | None = None) -> list[Decision]:
        """Returns the decisions in queue order, after reserving the capacity of admitted gangs in the view."""
        cycle = _Cycle(self._view, self._policy, self._quotas, now, nominated)
        self._hypothetical.start_cycle(now)
        queue = queue_order(gangs)
        # Each admission changes a share, so the fair order is evaluated as decisions are made.
        ordered = queue if self._shares is None else in_fair_order(queue, self._shares, set(self._turns.values()))
        decisions: list[Decision] = []
        turns: dict[int, str] = {}
        for queued in ordered:
            decisions.append(cycle.decide(queued, self._shape_of(queued.key, queued.gang.spec)))
            if cycle.last_holder == queued.key:
                turns.setdefault(queued.gang.spec.priority, queued.key)
        self._turns = turns
        self._forget(queue)
        return decisions

    def ordered(self, gangs: Iterable[Gang]) -> list[QueuedGang]:
        """Returns the pending gangs in the order in which a cycle would begin to decide on them now."""
        queue = queue_order(gangs)
        return queue if self._shares is None else list(in_fair_order(queue, self._shares, set(self._turns.values())))

    def _shape_of(self, key: str, spec: GangSpec) -> _GangShape | str:
        """Returns the gang's shape, or what is wrong with its spec."""
        known = self._shape_by_gang.get(key)
        if known is not None and (known[0] is spec or known[0] == spec):
            return known[1]
        shape = self._compile(spec)
        self._shape_by_gang[key] = spec, shape
        return shape

    def _compile(self, spec: GangSpec) -> _GangShape | str:
        names = [member.name for member in spec.members]
        if len(set(names)) < len(names):
            return "two members have the same name"
        try:
            pod_sets = pod_sets_of(spec)
        except ValueError as error:
            return str(error)
        shape = self._shapes.get(pod_sets)
        if shape is None:
            shape = self._shapes[pod_sets] = _GangShape(self._view, self._hypothetical, pod_sets)
        return shape

    def _forget(self, queue: Sequence[QueuedGang]) -> None:
        if len(self._shape_by_gang) > len(queue):
            keys = {queued.key for queued in queue}
            self._shape_by_gang = {key: value for key, value in self._shape_by_gang.items() if key in keys}
            used = {id(shape) for _, shape in self._shape_by_gang.values()}
            self._shapes = {pod_sets: shape for pod_sets, shape in self._shapes.items() if id(shape) in used}


class _Cycle:
    """The state of one cycle: the number of pending gangs, and the nodes that are still open to younger gangs."""

    def __init__(
        self,
        view: ClusterView,
        policy: AdmissionPolicy,
        quotas: NamespaceQuotas,
        now: datetime,
        nominated: NominatedNodes | None,
    ) -> None:
        self._view = view
        self._policy = policy
        self._quotas = quotas
        self._now = now
        self._nominated = nominated
        self._waiting = 0
        # The gang that was the last one to hold nodes for itself.
        self.last_holder = ""
        # None means all nodes; held nodes are removed.
        self._open: set[str] | None = None
        self._shapes_evaluated: set[int] = set()
        self._groups_held: set[int] = set()
        # Shapes that failed, and whether for the gang that has nominated nodes.
        self._failed: set[tuple[int, bool]] = set()

    def decide(self, queued: QueuedGang, shape: _GangShape | str) -> Decision:
        key = queued.key
        if isinstance(shape, str):
            return Unschedulable(key, INVALID_RESOURCES, shape)
        if queued.is_backing_off(self._now):
            return self._pending(key, (), BACKING_OFF, shape.may_fit())
        pod_sets = self._quotas.limit(queued.gang, shape.pod_sets)
        if isinstance(pod_sets, QuotaShortage) and not shape.exceeds_cluster():
            return self._pending(key, pod_sets.missing, pod_sets.message, is_over_quota=True)
        may_fit = shape.may_fit()
        placement = self._place(key, shape, pod_sets) if may_fit and not isinstance(pod_sets, QuotaShortage) else None
        if placement is not None:
            attempt = queued.gang.status.attempt + 1
            self._view.reserve(key, placement.node_of, requests_by_kind(shape.pod_sets), attempt=attempt)
            self._quotas.reserve(queued.gang, shape.pod_sets, placement.counts)
            return Admit(key, placement, attempt)
        if shape.exceeds_cluster():
            return Unschedulable(key, EXCEEDS_CLUSTER_CAPACITY, exceeds_capacity_message(shape.pod_sets))
        if self._open != set() and queued.waiting_seconds(self._now) >= self._policy.starvation_timeout_seconds:
            self._hold(key, shape)
        if may_fit and shape.may_fit():
            return self._pending(key, (), HELD_BACK, may_fit=True)
        return self._pending(key, *shape.message())

    def _pending(
        self,
        key: str,
        missing: tuple[Missing, ...],
        message: str,
        may_fit: bool = False,
        *,
        is_over_quota: bool = False,
    ) -> Pending:
        self._waiting += 1
        return Pending(key, self._waiting, missing, message, may_fit, is_over_quota)

    def _place(self, key: str, shape: _GangShape, pod_sets: Sequence[PodSet]) -> Placement | None:
        """Capacity only shrinks during a cycle, so a shape that has failed once fails again.

        `pod_sets` are the shape's with the counts that quotas allow. Their minimums are the same, and decide.
        """
        nominated = self._nominated
        attempt_key = id(shape), nominated is not None and nominated.gang_key == key
        if attempt_key in self._failed:
            return None
        allowed = self._allowed_nodes(key)
        placement = place(self._view, pod_sets, self._policy.topology_keys, allowed)
        if placement is not None:
            return placement
        self._failed.add(attempt_key)
        if allowed is None:
            shape.is_hopeless = True
        return None

    def _allowed_nodes(self, key: str) -> NodePredicate | None:
        """Returns which nodes this gang may be placed on; None for all."""
        open_nodes, nominated = self._open, self._nominated
        if nominated is None or nominated.gang_key == key:
            own = frozenset[str]() if nominated is None else nominated.nodes
            return None if open_nodes is None else (lambda info: info.name in open_nodes or info.name in own)
        others = nominated.nodes
        return lambda info: info.name not in others and (open_nodes is None or info.name in open_nodes)

    def _hold(self, key: str, shape: _GangShape) -> None:
        """Closes the nodes that this gang could use to all gangs behind it."""
        if id(shape) in self._shapes_evaluated:
            return
        self._shapes_evaluated.add(id(shape))
        if not shape.could_fit_without_gangs():
            return
        self.last_holder = key
        if self._open is None:
            self._open = set(self._view.node_infos)
        for group in shape.usable_groups():
            if id(group) not in self._groups_held:
                self._groups_held.add(id(group))
                self._open.difference_update(group.names)
