"""One pass over all gangs that wait: who is admitted where, and what the others are told.

Theory of operation. `Decider.decide` takes the gangs in queue order. Each one is placed on what the view has left, and
if that succeeds its room is reserved in the view at once, so that the next one sees what is left: two gangs can never
each hold a half. Who does not fit is skipped, and younger ones may start (backfill); but who has waited for
`starvation_timeout_seconds` *holds* every node that it could use, and nobody behind it in the queue may come there. A
gang holds nothing if it would not fit even if all gangs were gone (foreign pods are in its way, and holding would not
bring it nearer), or while it rests. Nodes that are *kept* for a gang, since others are giving room away for it
(scaling.py), are for nobody else, whoever comes first.

A pass must be cheap, since it runs after every event. Gangs of one shape share one `Shape`, which knows how much of it
would fit (`Outlook`, updated by what has changed) and whether a placement has been tried in vain since room last came.

Threads: as the view's, under the same lock. The time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from tfjob_controller.api.gang import Gang, GangSpec, Missing
from tfjob_controller.scheduling import messages
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.estimates import CapacityEstimate, HypotheticalCapacity
from tfjob_controller.scheduling.packing import NodeGroup
from tfjob_controller.scheduling.placement import NodePredicate, Placement, place
from tfjob_controller.scheduling.podsets import PodSet, pod_sets_of, requests_by_kind
from tfjob_controller.scheduling.queue import NominatedNodes, QueuedGang, queue_order

EXCEEDS_CLUSTER_CAPACITY = "ExceedsClusterCapacity"
INVALID_RESOURCES = "InvalidResources"


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """`topology_keys` are node labels, the widest first."""

    topology_keys: tuple[str, ...] = ()
    starvation_timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Admit:
    """All of it fits, and is reserved already for this attempt."""

    gang_key: str
    placement: Placement
    attempt: int


@dataclass(frozen=True, slots=True)
class Pending:
    """It does not start now. `position` counts from 1 over all that wait.

    `may_fit`: as far as is known without trying there is room, but it rests, or the room is held for another.
    """

    gang_key: str
    position: int
    missing: tuple[Missing, ...]
    message: str
    may_fit: bool = False


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """It would not fit an empty cluster, or asks for what cannot be understood."""

    gang_key: str
    reason: str
    message: str


Decision: TypeAlias = Admit | Pending | Unschedulable


class _Shape:
    """What gangs that ask for the same share."""

    def __init__(self, view: ClusterView, standing: HypotheticalCapacity, demands: tuple[PodSet, ...]) -> None:
        self.demands = demands
        self._view = view
        self._standing = standing
        self._outlook = CapacityEstimate(view, demands)
        self._tried_in_vain = False
        # The view's version (the picture's number), and what was found then.
        self._exceeds = (-1, False)
        self._could_fit = (-1, True)
        self._said: tuple[tuple[Missing, ...], str] = ((), "")
        self._said_at = -1
        self._said_of: tuple[int, ...] = ()

    def may_fit(self) -> bool:
        """False if it is certain, or was found out, that it does not fit."""
        self._outlook.refresh()
        if self._outlook.has_grown:
            self._outlook.has_grown = False
            self._tried_in_vain = False
        return not self._tried_in_vain and self._outlook.is_sufficient

    def note_tried_in_vain(self) -> None:
        """On all nodes: until room comes there is no need to try again."""
        self._tried_in_vain = True

    def exceeds_cluster(self) -> bool:
        version = self._view.nodes_version
        if self._exceeds[0] != version:
            self._exceeds = version, not self._standing.fits_empty(self.demands)
        return self._exceeds[1]

    def could_fit_without_gangs(self) -> bool:
        """Yes until it was asked; an answer may be that of an earlier pass."""
        picture = self._standing.picture
        if self._could_fit[0] != picture and self._standing.may_ask():
            self._could_fit = picture, self._standing.fits_without_gangs(self.demands)
        return self._could_fit[1]

    def usable_nodes(self) -> Sequence[NodeGroup]:
        """The nodes to which any of its pods could ever come."""
        return [
            group
            for group in self._standing.empty(self.demands)
            if any(
                suits and each.min_count and each.capacity(group.free)
                for suits, each in zip(group.accepts, self.demands, strict=True)
            )
        ]

    def words(self) -> tuple[tuple[Missing, ...], str]:
        """What is lacking; the same objects as long as the situation is the same."""
        if self._said_at != self._view.version:
            self._said_at = self._view.version
            figures = (self._view.nodes_version, *self._outlook.fingerprint())
            if self._said_of != figures:
                tallies = self._outlook.estimates
                words = messages.pending_message(self.demands, tallies, self._standing.objections)
                self._said, self._said_of = (messages.missing_resources(self.demands, tallies), words), figures
        return self._said


class AdmissionDecider:
    """Remembers between passes what has not changed."""

    def __init__(self, view: ClusterView, policy: AdmissionPolicy) -> None:
        self._view = view
        self._policy = policy
        self._standing = HypotheticalCapacity(view)
        self._shapes: dict[tuple[PodSet, ...], _Shape] = {}
        self._compiled: dict[str, tuple[GangSpec, _Shape | str]] = {}

    def decide(self, gangs: Iterable[Gang], now: datetime, kept: NominatedNodes | None = None) -> list[Decision]:
        """Verdicts in queue order. What is admitted is reserved in the view before this returns."""
        one_pass = _Pass(self._view, self._policy, now, kept)
        self._standing.start_pass(now)
        queue = queue_order(gangs)
        verdicts = [one_pass.judge(each, self._shape_of(each.key, each.gang.spec)) for each in queue]
        self._forget(queue)
        return verdicts

    def _shape_of(self, key: str, spec: GangSpec) -> _Shape | str:
        """The gang's shape, or what is wrong with it."""
        known = self._compiled.get(key)
        if known is not None and (known[0] is spec or known[0] == spec):
            return known[1]
        shape = self._compile(spec)
        self._compiled[key] = spec, shape
        return shape

    def _compile(self, spec: GangSpec) -> _Shape | str:
        names = [each.name for each in spec.members]
        if len(set(names)) < len(names):
            return "two members have the same name"
        try:
            demands = pod_sets_of(spec)
        except ValueError as error:
            return str(error)
        shape = self._shapes.get(demands)
        if shape is None:
            shape = self._shapes[demands] = _Shape(self._view, self._standing, demands)
        return shape

    def _forget(self, queue: Sequence[QueuedGang]) -> None:
        if len(self._compiled) > len(queue):
            keys = {each.key for each in queue}
            self._compiled = {key: value for key, value in self._compiled.items() if key in keys}
            used = {id(shape) for _, shape in self._compiled.values()}
            self._shapes = {demands: shape for demands, shape in self._shapes.items() if id(shape) in used}


class _Pass:
    """The state of one pass: how many wait, and which nodes are still open to those who have not waited long."""

    def __init__(self, view: ClusterView, policy: AdmissionPolicy, now: datetime, kept: NominatedNodes | None) -> None:
        self._view = view
        self._policy = policy
        self._now = now
        self._kept = kept
        self._waiting = 0
        # None: all. Nodes that a gang holds are taken out.
        self._open: set[str] | None = None
        self._asked_to_hold: set[int] = set()
        self._held: set[int] = set()
        # Shapes, and whether it was tried for the gang that nodes are kept for.
        self._failed: set[tuple[int, bool]] = set()

    def judge(self, queued: QueuedGang, shape: _Shape | str) -> Decision:
        key = queued.key
        if isinstance(shape, str):
            return Unschedulable(key, INVALID_RESOURCES, shape)
        if queued.is_backing_off(self._now):
            return self._wait(key, (), messages.BACKING_OFF, shape.may_fit())
        may_fit = shape.may_fit()
        placement = self._place(key, shape) if may_fit else None
        if placement is not None:
            return self._admit(queued, shape, placement)
        if shape.exceeds_cluster():
            return Unschedulable(key, EXCEEDS_CLUSTER_CAPACITY, messages.exceeds_capacity_message(shape.demands))
        if self._open != set() and queued.waiting_seconds(self._now) >= self._policy.starvation_timeout_seconds:
            self._hold(shape)
        if may_fit and shape.may_fit():
            return self._wait(key, (), messages.HELD_BACK, may_fit=True)
        return self._wait(key, *shape.words())

    def _admit(self, queued: QueuedGang, shape: _Shape, placement: Placement) -> Admit:
        key, attempt = queued.key, queued.gang.status.attempt + 1
        self._view.reserve(key, placement.node_of, requests_by_kind(shape.demands), attempt=attempt)
        return Admit(key, placement, attempt)

    def _wait(self, key: str, missing: tuple[Missing, ...], message: str, may_fit: bool = False) -> Pending:
        self._waiting += 1
        return Pending(key, self._waiting, missing, message, may_fit)

    def _place(self, key: str, shape: _Shape) -> Placement | None:
        """Room only shrinks during a pass, so who has failed once fails again."""
        kept = self._kept
        question = id(shape), kept is not None and kept.gang_key == key
        if question in self._failed:
            return None
        usable = self._usable(key)
        found = place(self._view, shape.demands, self._policy.topology_keys, usable)
        if isinstance(found, Placement):
            return found
        self._failed.add(question)
        if usable is None:
            shape.note_tried_in_vain()
        return None

    def _usable(self, key: str) -> NodePredicate | None:
        """The nodes that this gang may come to; None: all."""
        open_nodes, kept = self._open, self._kept
        if kept is None or kept.gang_key == key:
            own = frozenset[str]() if kept is None else kept.nodes
            return None if open_nodes is None else (lambda room: room.name in open_nodes or room.name in own)
        others = kept.nodes
        return lambda room: room.name not in others and (open_nodes is None or room.name in open_nodes)

    def _hold(self, shape: _Shape) -> None:
        """Close the nodes that this gang could use to all that come after it."""
        if id(shape) in self._asked_to_hold:
            return
        self._asked_to_hold.add(id(shape))
        if not shape.could_fit_without_gangs():
            return
        if self._open is None:
            self._open = set(self._view.node_infos)
        for group in shape.usable_nodes():
            if id(group) not in self._held:
                self._held.add(id(group))
                self._open.difference_update(group.names)
