"""The rules for requests to a node autoscaler: which gangs need one, when, and the state of each. No I/O.

Theory of operation. A pass goes through the decisions of the admission loop, in queue order:

    lacks capacity    a gang that does not fit, or exceeds the cluster, for `after_seconds` gets a request. One that
                      waits for its quota, backs off, is held back by others, or gets the capacity of others, does not.
    has a request     the request stays until the gang is bound, suspended or deleted, or changes what it needs. What
                      its conditions say becomes a note, which the loop adds to the gang's message.
    request is over   failed, or its capacity is gone: it is deleted, and the next one follows after a backoff.

Nodes cost money, so a tenant has bounds. The requests of a namespace count together against its ResourceQuotas, and
there are at most `MAX_OF_NAMESPACE` of them, and `MAX_REQUESTS` in all. A gang beyond a bound waits for its turn.

When gangs began to lack capacity, and how often requests have failed, is not stored: after a restart a gang waits
`after_seconds` again.

Threads: one, except for the functions.
Source: kubernetes/autoscaler processors/provreq, provisioningrequest/conditions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from tfjob_controller.api.gang import (
    ADMITTED,
    GANGS,
    UNSCHEDULABLE,
    WAITING,
    Gang,
    kind_of,
    parse_index,
    placed_nodes,
)
from tfjob_controller.api.provisioningrequest import (
    ACCEPTED,
    BOOKING_EXPIRED,
    CAPACITY_REVOKED,
    FAILED,
    NUMBER_LABEL,
    PROVISIONED,
    ProvisioningRequest,
)
from tfjob_controller.gangscheduler.provisioning.bodies import RequestBodies, request_bodies
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.decisions import (
    BACKING_OFF,
    EXCEEDS_CLUSTER_CAPACITY,
    Decision,
    Pending,
    Unschedulable,
)
from tfjob_controller.scheduling.podsets import pod_sets_of, valid_pod_sets_of
from tfjob_controller.scheduling.quota import NamespaceQuotas, QuotaLookup, QuotaShortage
from tfjob_controller.util.text import CONTROL_CHARACTERS
from tfjob_controller.util.timestamps import format_time

MAX_OF_NAMESPACE, MAX_REQUESTS = 10, 100
# The backoff after a request that is over; it doubles with each one.
BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 60.0, 1800.0
_MAX_MESSAGE = 200
_CONTROLS = re.compile(f"[\x00-\x1f{CONTROL_CHARACTERS}]+")


class RequestState(StrEnum):
    """What has become of a request; also the label `state` of `gang_provisioning_requests`."""

    REQUESTED = "requested"
    ACCEPTED = "accepted"
    PROVISIONED = "provisioned"
    FAILED = "failed"
    EXPIRED = "expired"
    REVOKED = "revoked"


_OVER = {
    RequestState.FAILED: "failed",
    RequestState.EXPIRED: "was provisioned, but its booking has expired",
    RequestState.REVOKED: "was provisioned, but its capacity was revoked",
}


def request_state(request: ProvisioningRequest) -> tuple[RequestState, str]:
    """Returns the state that the conditions show, and the message of the condition, truncated and in one line."""
    known = {condition.type: condition for condition in request.status.conditions}
    true = {type_ for type_, condition in known.items() if condition.status == "True"}
    for type_, state in (
        (FAILED, RequestState.FAILED),
        (CAPACITY_REVOKED, RequestState.REVOKED),
        (BOOKING_EXPIRED, RequestState.EXPIRED),
        (PROVISIONED, RequestState.PROVISIONED),
    ):
        if type_ in true:
            return state, _one_line(known[type_].message)
    # An autoscaler that keeps trying reports the reason in a condition Provisioned that is False.
    message = _one_line(known[PROVISIONED].message) if PROVISIONED in known else ""
    return (RequestState.ACCEPTED if ACCEPTED in true else RequestState.REQUESTED), message


def owner_key(request: ProvisioningRequest) -> tuple[str, str]:
    """Returns key and uid of the Gang that owns a request; empty without one."""
    gang = next((owner for owner in request.metadata.owner_references if owner.kind == GANGS.kind), None)
    return (f"{request.metadata.namespace}/{gang.name}", gang.uid) if gang is not None else ("", "")


@dataclass(frozen=True, slots=True)
class ProvisioningPolicy:
    """`class_name` is the provisioning class, `after_seconds` how long a gang lacks capacity before it asks."""

    class_name: str
    after_seconds: float


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """A request that is over, and why."""

    gang: Gang
    state: RequestState
    note: str


@dataclass(slots=True)
class RequestPlan:
    """What one pass does. By gang, `notes` are for its message, and `current` is the name of its request."""

    creates: list[tuple[Gang, RequestBodies]] = field(default_factory=list)
    deletes: list[ProvisioningRequest] = field(default_factory=list)
    ended: list[EndedRequest] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Retry:
    """The number of the last request of a gang, when the next one may follow (monotonic), and what was wrong."""

    number: int
    not_before: float
    note: str


@dataclass(slots=True)
class _Need:
    """Since when a gang lacks capacity (monotonic), and its last request if that is over."""

    since: float | None = None
    retry: _Retry | None = None


class RequestPlanner:
    """Remembers since when gangs lack capacity and when failed requests are repeated. See the module's docstring."""

    def __init__(self, policy: ProvisioningPolicy, quotas_of: QuotaLookup) -> None:
        self._policy = policy
        self._quotas_of = quotas_of
        self._needs: dict[str, _Need] = {}

    def plan(
        self,
        gangs: Sequence[Gang],
        decisions: Iterable[Decision],
        requests: Iterable[ProvisioningRequest],
        nominated: str,
        monotonic: float,
        now: datetime,
    ) -> RequestPlan:
        """Returns what is to be done now. `nominated` is the gang that gets the capacity of others, if any."""
        plan = RequestPlan()
        by_key = {key_of(gang): gang for gang in gangs}
        kept = self._kept(by_key, requests, plan)
        quotas = self._quotas_with_reservations(gangs)
        waiting = [
            decision
            for decision in decisions
            if isinstance(decision, Pending | Unschedulable) and decision.gang_key in by_key
        ]
        remembered = {decision.gang_key for decision in waiting} | kept.keys()
        self._needs = {key: need for key, need in self._needs.items() if key in remembered}
        undecided = kept.keys() - {decision.gang_key for decision in waiting}
        for key in undecided:
            self._follow(by_key[key], kept.pop(key), plan, monotonic, now)
        counts = Counter(by_key[key].metadata.namespace for key in [*undecided, *kept])
        # Gangs that have asked come first: what they ask for counts against the quotas before that of others.
        for decision in sorted(waiting, key=lambda decision: decision.gang_key not in kept):
            gang = by_key[decision.gang_key]
            request = kept.get(decision.gang_key)
            if request is None:
                self._consider(gang, decision, plan, quotas, counts, nominated, monotonic)
            elif _is_over_quota(gang, decision, quotas):
                plan.deletes.append(request)
            else:
                self._follow(gang, request, plan, monotonic, now)
        return plan

    def refused(self, gang: Gang, message: str, monotonic: float, now: datetime) -> None:
        """Record that a request could not be created."""
        self._retry(key_of(gang), f"no ProvisioningRequest: {_one_line(message)}", monotonic, now)

    def _kept(
        self, gangs: Mapping[str, Gang], requests: Iterable[ProvisioningRequest], plan: RequestPlan
    ) -> dict[str, ProvisioningRequest]:
        """Returns the requests that belong to what gangs need now, by gang; all others are deleted."""
        kept: dict[str, ProvisioningRequest] = {}
        for request in requests:
            key, uid = owner_key(request)
            gang = gangs.get(key)
            if gang is not None and gang.metadata.uid == uid and key not in kept and self._is_needed(gang, request):
                kept[key] = request
            elif request.metadata.deletion_timestamp is None:
                plan.deletes.append(request)
        return kept

    def _is_needed(self, gang: Gang, request: ProvisioningRequest) -> bool:
        status = gang.status
        if gang.spec.suspend or gang.metadata.deletion_timestamp is not None:
            return False
        if status.phase == ADMITTED:
            used = status.provisioning_request
            return used is not None and used.name == request.metadata.name
        if status.phase not in ("", WAITING, UNSCHEDULABLE):
            return False
        try:
            return request.metadata.name == request_bodies(gang, self._policy.class_name, number_of(request)).name
        except ValueError:
            return False

    def _quotas_with_reservations(self, gangs: Iterable[Gang]) -> NamespaceQuotas:
        """Returns the quotas less what admitted gangs have reserved. Pods that exist may count twice for a moment."""
        quotas = NamespaceQuotas(self._quotas_of)
        for gang in gangs:
            if gang.status.phase == ADMITTED:
                counts = Counter(kind_of(member) for member in placed_nodes(gang.status))
                quotas.reserve(gang, valid_pod_sets_of(gang.spec), counts)
        return quotas

    def _follow(
        self, gang: Gang, request: ProvisioningRequest, plan: RequestPlan, monotonic: float, now: datetime
    ) -> None:
        """Note what has become of a gang's request, and delete it if it is over."""
        key, name = key_of(gang), request.metadata.name
        state, message = request_state(request)
        if state in _OVER:
            plan.deletes.append(request)
            number = number_of(request)
            why = f"ProvisioningRequest {name} {_OVER[state]}{f': {message}' if message else ''}"
            plan.notes[key] = self._retry(key, why, monotonic, now, number)
            plan.ended.append(EndedRequest(gang, state, plan.notes[key]))
            return
        plan.current[key] = name
        if state is RequestState.PROVISIONED:
            plan.notes[key] = f"ProvisioningRequest {name} is provisioned, the nodes are about to join"
            return
        is_accepted = state is RequestState.ACCEPTED
        what = "was accepted by the node autoscaler" if is_accepted else "waits for the node autoscaler"
        plan.notes[key] = f"ProvisioningRequest {name} {what}{f': {message}' if message else ''}"

    def _retry(self, key: str, why: str, monotonic: float, now: datetime, number: int = 0) -> str:
        """Remember that a request is over, and when the next one follows. Returns the note that says so."""
        need = self._needs.setdefault(key, _Need())
        number = max(number, need.retry.number + 1 if need.retry is not None else 1)
        seconds = min(BACKOFF_SECONDS * 2.0 ** min(number - 1, 16), MAX_BACKOFF_SECONDS)
        at = format_time(now + timedelta(seconds=seconds))
        need.retry = _Retry(number, monotonic + seconds, f"{why}; the next one follows at {at}")
        return need.retry.note

    def _consider(
        self,
        gang: Gang,
        decision: Pending | Unschedulable,
        plan: RequestPlan,
        quotas: NamespaceQuotas,
        counts: Counter[str],
        nominated: str,
        monotonic: float,
    ) -> None:
        """Plan a request for a gang that has none, if it needs one and no bound forbids it."""
        key, namespace = key_of(gang), gang.metadata.namespace
        need = self._needs.setdefault(key, _Need())
        if not lacks_capacity(decision) or key == nominated:
            need.since = None
            return
        if need.since is None:
            need.since = monotonic
        if monotonic < need.since + self._policy.after_seconds:
            return
        retry = need.retry
        if retry is not None and monotonic < retry.not_before:
            plan.notes[key] = retry.note
        elif counts[namespace] >= MAX_OF_NAMESPACE:
            plan.notes[key] = f"no ProvisioningRequest yet: the namespace has {MAX_OF_NAMESPACE}, the most there can be"
        elif counts.total() >= MAX_REQUESTS:
            plan.notes[key] = f"no ProvisioningRequest yet: the cluster has {MAX_REQUESTS}, the most there can be"
        elif _is_over_quota(gang, decision, quotas):
            plan.notes[key] = "no ProvisioningRequest: the quotas of the namespace do not allow its pods"
        else:
            counts[namespace] += 1
            number = retry.number + 1 if retry is not None else 1
            plan.creates.append((gang, request_bodies(gang, self._policy.class_name, number)))


def number_of(request: ProvisioningRequest) -> int:
    """Returns the number of a request for its gang, from 1."""
    return max(parse_index(request.metadata.labels.get(NUMBER_LABEL, "")) or 1, 1)


def lacks_capacity(decision: Decision) -> bool:
    """Reports whether more nodes would help the gang: it does not fit, for no other reason than the capacity."""
    if isinstance(decision, Unschedulable):
        return decision.reason == EXCEEDS_CLUSTER_CAPACITY
    if not isinstance(decision, Pending):
        return False
    return not (decision.may_fit or decision.is_over_quota or decision.message == BACKING_OFF)


def _is_over_quota(gang: Gang, decision: Pending | Unschedulable, quotas: NamespaceQuotas) -> bool:
    """Reports whether the quotas forbid the gang beside those that were asked for before; otherwise it counts now."""
    if isinstance(decision, Pending) and decision.is_over_quota:
        return True
    try:
        pod_sets = pod_sets_of(gang.spec)
    except ValueError:
        return True
    if isinstance(quotas.limit(gang, pod_sets), QuotaShortage):
        return True
    quotas.reserve(gang, pod_sets, {pod_set.name: pod_set.min_count for pod_set in pod_sets})
    return False


def _one_line(text: str) -> str:
    return _CONTROLS.sub(" ", text[:_MAX_MESSAGE]).strip()
