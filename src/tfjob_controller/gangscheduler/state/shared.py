"""State that the gang scheduler's threads share: the cluster view, and the gangs that the admission loop must process.

Theory of operation. The informers' handlers keep the view current. A thread that learns of a change which may affect a
gang marks the gang here and returns; the loop takes all marked gangs at once (`take`). Other threads therefore depend
on this module, and none depends on the loop: a gang's path leads from here to the loop (admission/loop.py), to Permit
(permit/permit.py) and to the binder (binding/binder.py), and back only through the marks.

`RejectedNodes` records which nodes kube-scheduler's own filters rejected for which members, so that these members are
placed elsewhere. A rejection expires: ports become free, and volumes become available.

Locks: `lock` guards the view, the gangs' pods and the usage of quotas. It is held while a pass computes, never during
I/O, and kube-scheduler's filter calls do not wait for it. The marks have a lock of their own, which is held briefly.
Threads: any, but only the loop calls `take` and `wait`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.common.podrequests import Amounts, amounts_of, requests_of
from tfjob_controller.api.common.quantity import PODS, quantity_of
from tfjob_controller.api.gang import (
    ADMITTED,
    ATTEMPT_LABEL,
    Gang,
    GangSpec,
    GangStatus,
    Member,
    gang_key_of,
    kind_of,
    member_of,
    parse_index,
    placed_nodes,
)
from tfjob_controller.gangscheduler.bindrequests import GangMember
from tfjob_controller.gangscheduler.state.admittedclasses import AdmittedClasses
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import controller_of, key_of
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import NominatedNodes
from tfjob_controller.scheduling.quota import PodUsage
from tfjob_controller.util.clock import Clock

# An observation that no longer holds, such as a deleted LimitRange, must not block a gang; a futile attempt is cheap.
RETENTION_SECONDS = 600.0
# The time after which kube-scheduler retries an unschedulable pod without any event.
REJECTION_SECONDS = 300.0


@dataclass(slots=True)
class _GangRequests:
    """`spec` is `declared` with the observed requests; both are None until `apply` needs them."""

    by_kind: dict[str, dict[str, int]] = field(default_factory=dict)
    observed_time: float = 0.0
    declared: GangSpec | None = None
    spec: GangSpec | None = None


class ObservedRequests:
    """Resource requests of gangs' pods where they exceed what their Gangs declare. Safe to use from any thread.

    A Gang declares what each of its pods requests before any pod exists. The API server may add to the pods' requests
    (the defaults of a LimitRange, the overhead of a RuntimeClass, a webhook), or the owner declared too little. kube-
    scheduler goes by the pods; a gang placed by its declaration alone would not pass its filters, and the capacity
    would look free to others. Therefore, from the first pod on, a kind of member counts with the largest requests that
    any of its pods had, or with the declaration if that is larger. This also holds for later attempts, which have no
    pods yet, until the spec declares other resources or the observation expires: then the declaration counts again.

    The observations are not stored. A new leader learns them from the pods.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_gang: dict[str, _GangRequests] = {}

    def add_pod(self, pod: ScheduledPod) -> None:
        """Record the requests of a created pod."""
        key = gang_key_of(pod.metadata)
        if not key:
            return
        try:
            amounts = requests_of(pod)
        except ValueError:
            return
        kind = kind_of(member_of(pod.metadata))
        with self._lock:
            known = self._by_gang.setdefault(key, _GangRequests())
            known.observed_time = self._clock.monotonic()
            if _raise(known.by_kind.setdefault(kind, {}), amounts):
                known.declared = None

    def apply(self, key: str, gang: Gang) -> Gang:
        """Returns the gang with the observed requests; the same object if its declaration suffices."""
        with self._lock:
            known = self._by_gang.get(key)
            if known is None:
                return gang
            if known.declared is not gang.spec or known.spec is None:
                known.declared, known.spec = gang.spec, _apply(gang.spec, known.by_kind)
            spec = known.spec
        return gang if spec is gang.spec else replace(gang, spec=spec)

    def expire(self, key: str, gang: Gang) -> float | None:
        """For a waiting gang: drop the observation if it expired or the spec declares other resources.

        Returns the seconds until it expires; None without an observation.
        """
        with self._lock:
            known = self._by_gang.get(key)
            if known is None or known.declared is None or known.spec is known.declared:
                return None
            left = known.observed_time + RETENTION_SECONDS - self._clock.monotonic()
            if left <= 0 or _spec_requests(known.declared) != _spec_requests(gang.spec):
                del self._by_gang[key]
                return None
        return left

    def forget(self, key: str) -> None:
        """Forget a deleted Gang."""
        with self._lock:
            self._by_gang.pop(key, None)


class RejectedNodes:
    """Nodes that kube-scheduler's filters rejected, by gang and member. Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # The time of the rejection by gang, member and node.
        self._rejected: dict[str, dict[str, dict[str, float]]] = {}

    def add(self, member: GangMember, node: str) -> bool:
        """Record a rejection. Returns whether it was not known."""
        now = self._clock.monotonic()
        with self._lock:
            nodes = self._rejected.setdefault(member.gang, {}).setdefault(member.name, {})
            is_new = now - nodes.get(node, -REJECTION_SECONDS) >= REJECTION_SECONDS
            if is_new:
                nodes[node] = now
        return is_new

    def by_member(self, gang: str) -> Mapping[str, Collection[str]]:
        """Returns the unexpired rejections of a gang, by member."""
        now = self._clock.monotonic()
        with self._lock:
            members = self._rejected.get(gang, {})
            return {
                member: {node for node, moment in nodes.items() if now - moment < REJECTION_SECONDS}
                for member, nodes in members.items()
            }

    def forget(self, gang: str) -> None:
        with self._lock:
            self._rejected.pop(gang, None)


class PlacedNodes:
    """The nodes of the members of the status that was asked for last: many are looked up in one after the other.

    Threads: any.
    """

    def __init__(self) -> None:
        self._latest: tuple[GangStatus, dict[str, str]] = (GangStatus(), {})

    def of(self, status: GangStatus) -> Mapping[str, str]:
        """Returns the node of each assigned member."""
        known, nodes = self._latest
        if known is not status:
            nodes = placed_nodes(status)
            self._latest = (status, nodes)
        return nodes


class GangPods:
    """The pods of each gang, exactly as the view counts them. Guarded by the view's lock.

    The informer's store may be ahead of its handlers, which keep the view current. If the loop took a gang's pods from
    the store, it would miss the capacity of pods that are gone there and that the view still counts, and would request
    it from other gangs.
    """

    def __init__(self) -> None:
        self._by_gang: dict[str, dict[str, ScheduledPod]] = {}

    def set(self, pod: ScheduledPod) -> None:
        """Adds or updates a pod."""
        if gang := gang_key_of(pod.metadata):
            self._by_gang.setdefault(gang, {})[key_of(pod)] = pod

    def remove(self, pod: ScheduledPod) -> None:
        """Removes a pod from the gang that its labels name."""
        gang = gang_key_of(pod.metadata)
        pods = self._by_gang.get(gang, {})
        pods.pop(key_of(pod), None)
        if gang and not pods:
            self._by_gang.pop(gang, None)

    def of(self, gang_key: str) -> Sequence[ScheduledPod]:
        """Returns the pods of a gang, finished ones and those of all attempts included."""
        return tuple(self._by_gang.get(gang_key, {}).values())


class SharedState:
    """The view, what is known beyond Gangs and pods, and the marks for the loop."""

    def __init__(self, gangs: Store[Gang], clock: Clock) -> None:
        self.view = ClusterView()
        self.gang_pods = GangPods()
        self.pod_usage = PodUsage()
        self.lock = threading.Lock()
        self.observed_requests = ObservedRequests(clock)
        self.rejected_nodes = RejectedNodes(clock)
        self.admitted_classes = AdmittedClasses()
        # The value is immutable, so it is read without the lock.
        self.nominated: NominatedNodes | None = None
        self._gangs = gangs
        self._clock = clock
        self._changed = threading.Condition()
        self._marked: set[str] = set()
        self._is_woken = False
        self._rejected_attempts: dict[str, int] = {}

    # Marks, from any thread

    def enqueue(self, gang_key: str) -> None:
        """Mark a gang that changed, or whose pods changed."""
        with self._changed:
            self._marked.add(gang_key)
            self._changed.notify_all()

    def capacity_changed(self) -> None:
        """Wake the loop because a node or pod changed so that a waiting gang may fit."""
        self.wake()

    def wake(self) -> None:
        """Wake the loop without marking a gang: capacity changed, a status write ended, or the loop is to stop."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def node_degraded(self, node: str) -> None:
        """Mark admitted gangs with members on a node that may have become unsuitable."""
        for gang in self._gangs.list():
            if gang.status.phase == ADMITTED and any(placement.node == node for placement in gang.status.placement):
                self.enqueue(key_of(gang))

    def node_rejected(self, member: GangMember, node: str) -> None:
        """Record that kube-scheduler's filters rejected the member's node."""
        if self.rejected_nodes.add(member, node):
            self.enqueue(member.gang)

    def attempt_rejected(self, gang: str, attempt: int) -> None:
        """Record that Permit rejected an attempt, of which no Binding is in flight."""
        with self._changed:
            self._rejected_attempts[gang] = attempt
        self.enqueue(gang)

    def note_created(self, pod: ScheduledPod, note: Callable[[str, int, str], None]) -> None:
        """Call `note(gang, attempt, member)` if the pod counts as progress of its gang.

        It must request what the Gang states for its member, and have a controller if the Gang has one. The caller
        checks attempt and member.
        """
        key = gang_key_of(pod.metadata)
        gang = self._gangs.get(key)
        attempt = parse_index(pod.metadata.labels.get(ATTEMPT_LABEL, ""))
        member = member_of(pod.metadata)
        if gang is not None and attempt is not None and _is_as_declared(gang, member, pod):
            note(key, attempt, member)

    # For the loop

    def wait(self, seconds: float) -> None:
        """Wait for a mark or `wake`, for at most `seconds`."""
        with self._changed:
            if not self._marked and not self._is_woken:
                self._clock.wait(self._changed, seconds)

    def take(self) -> set[str]:
        """Take all marked gangs."""
        with self._changed:
            marked, self._marked, self._is_woken = self._marked, set(), False
        return marked

    def is_attempt_rejected(self, gang: Gang) -> bool:
        """Reports whether Permit rejected the gang's current attempt."""
        return self._rejected_attempts.get(key_of(gang)) == gang.status.attempt

    def forget(self, gang_key: str) -> None:
        """Forget a Gang that was deleted or recreated."""
        self.rejected_nodes.forget(gang_key)
        self.observed_requests.forget(gang_key)
        self._rejected_attempts.pop(gang_key, None)


def _is_as_declared(gang: Gang, member: str, pod: ScheduledPod) -> bool:
    declared = next((each for each in gang.spec.members if each.name == kind_of(member)), None)
    if declared is None or (controller_of(gang) is not None and controller_of(pod) is None):
        return False
    try:
        amounts = requests_of(pod)
        return all(amounts.get(name, 0) >= amount for name, amount in amounts_of(declared).items())
    except ValueError:
        return False


def _spec_requests(spec: GangSpec) -> tuple[tuple[str, Mapping[str, str]], ...]:
    return tuple((member.name, member.resources) for member in spec.members)


def _apply(spec: GangSpec, by_kind: Mapping[str, Amounts]) -> GangSpec:
    members = tuple(_member(member, by_kind.get(member.name, {})) for member in spec.members)
    changed = any(new is not old for new, old in zip(members, spec.members, strict=True))
    return replace(spec, members=members) if changed else spec


def _member(member: Member, needed: Amounts) -> Member:
    try:
        declared = amounts_of(member)
    except ValueError:
        return member
    more = {
        name: quantity_of(name, amount)
        for name, amount in needed.items()
        if name != PODS and amount > declared.get(name, 0)
    }
    return replace(member, resources={**member.resources, **more}) if more else member


def _raise(total: dict[str, int], least: Amounts) -> bool:
    more = {name: amount for name, amount in least.items() if amount > total.get(name, 0)}
    total.update(more)
    return bool(more)
