"""The fields of pods, nodes and gangs that the auditor reads, with its own parsers of the server's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from audit.quantity import Amounts, amounts, total

Object = Mapping[str, Any]

_PREFIX = "scheduling.kubeflow.org"
_FINISHED = ("Succeeded", "Failed")
# One pod, in thousandths like all other amounts.
_ONE_POD = 1000


@dataclass(frozen=True, slots=True)
class Pod:
    """`gang` is the namespace/name of its Gang, empty for other pods; `requests` includes the resource `pods`."""

    key: str
    uid: str
    node: str
    phase: str
    scheduler: str
    requests: Amounts
    gang: str = ""
    member: str = ""
    attempt: str = ""
    is_preempted: bool = False
    created_at: float = 0.0

    @property
    def is_finished(self) -> bool:
        return self.phase in _FINISHED

    @property
    def uses_capacity(self) -> bool:
        return bool(self.node) and not self.is_finished


@dataclass(frozen=True, slots=True)
class Node:
    """`is_open` reports whether the node is ready, not cordoned and without taints that keep pods away."""

    name: str
    allocatable: Amounts
    labels: Mapping[str, str]
    is_open: bool


@dataclass(frozen=True, slots=True)
class Need:
    """The pods of one kind. `is_plain` means that only capacity and nodeSelector decide where they can run."""

    name: str
    count: int
    requests: Amounts
    selector: Mapping[str, str]
    is_plain: bool


@dataclass(frozen=True, slots=True)
class Quota:
    """What a ResourceQuota without scopes allows the pods of its namespace to request, `pods` included.

    `used` is what its status says of the same resources. The API server refuses pods by it, and its controller may
    reduce it long after pods have ended.
    """

    key: str
    namespace: str
    hard: Amounts
    used: Amounts


@dataclass(frozen=True, slots=True)
class Preemption:
    """The gang that gets the capacity, the state, and when it was requested."""

    by: str
    state: str
    at: float


@dataclass(frozen=True, slots=True)
class Gang:
    """Times are seconds since the epoch; a `not_before` of 0 means none.

    `is_refused`: the gang scheduler says that it may preempt no gang now.
    """

    key: str
    uid: str
    phase: str
    attempt: str
    placement: Mapping[str, str]
    needs: tuple[Need, ...]
    priority: int
    since: float
    not_before: float
    is_refused: bool
    is_suspended: bool
    is_being_deleted: bool
    is_resize_requested: bool
    """Whether the gang scheduler has requested another number of members from the owner."""
    resized_at: float
    bound_at: float
    preemption: Preemption | None

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def is_placed(self) -> bool:
        """Reports whether members may be bound and have reservations."""
        return self.phase in ("Admitted", "Bound") and not self.is_being_deleted

    @property
    def is_waiting(self) -> bool:
        if self.is_suspended or self.is_being_deleted:
            return False
        return self.phase in ("", "Waiting", "Unschedulable") or (self.phase == "Released" and not self.placement)


def pod_of(obj: Object) -> Pod:
    meta, spec, status = obj["metadata"], obj["spec"], obj.get("status", {})
    labels = meta.get("labels") or {}
    name = labels.get(f"{_PREFIX}/gang", "")
    return Pod(
        key=key_of(obj),
        uid=meta["uid"],
        node=spec.get("nodeName", ""),
        phase=status.get("phase", ""),
        scheduler=spec.get("schedulerName", "default-scheduler"),
        requests=requests_of(spec),
        gang=f"{meta['namespace']}/{name}" if name else "",
        member=_member_of(labels),
        attempt=labels.get(f"{_PREFIX}/attempt", ""),
        is_preempted=any(map(_is_preemption, status.get("conditions") or ())),
        created_at=epoch_seconds(meta.get("creationTimestamp")),
    )


def _member_of(labels: Mapping[str, str]) -> str:
    """Returns the name of the member. Pods of an Indexed Job have labels for its kind and index instead of the name."""
    kind, index = labels.get(f"{_PREFIX}/member-kind"), labels.get("batch.kubernetes.io/job-completion-index")
    return labels.get(f"{_PREFIX}/member", f"{kind}-{index}" if kind and index else "")


def node_of(obj: Object) -> Node:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    is_tainted = any(taint["effect"] in ("NoSchedule", "NoExecute") for taint in spec.get("taints") or ())
    return Node(
        name=obj["metadata"]["name"],
        allocatable=amounts(status.get("allocatable")),
        labels=obj["metadata"].get("labels") or {},
        is_open=conditions.get("Ready") == "True" and not is_tainted and not spec.get("unschedulable", False),
    )


def gang_of(obj: Object) -> Gang:
    meta, spec, status = obj["metadata"], obj.get("spec", {}), obj.get("status") or {}
    places = status.get("placement") or ()
    return Gang(
        key=key_of(obj),
        uid=meta["uid"],
        phase=status.get("phase", ""),
        attempt=str(status.get("attempt", 0)),
        placement={member: place["node"] for place in places for member in place.get("members") or ()},
        needs=tuple(map(_need, spec.get("members") or ())),
        priority=spec.get("priority", 0),
        since=epoch_seconds(status.get("queuedTime") or meta["creationTimestamp"]),
        not_before=epoch_seconds(status.get("requeueTime")),
        is_refused="preempts no gang" in status.get("message", ""),
        is_suspended=bool(spec.get("suspend", False)),
        is_being_deleted="deletionTimestamp" in meta,
        is_resize_requested=bool(status.get("targetMembers")),
        resized_at=epoch_seconds(status.get("lastResizeTime")),
        bound_at=epoch_seconds(status.get("boundTime")),
        preemption=_preemption_of(status.get("preemption")),
    )


def _preemption_of(body: Object | None) -> Preemption | None:
    if not body:
        return None
    return Preemption(body.get("by", ""), body.get("state", ""), epoch_seconds(body.get("time")))


def quota_of(obj: Object) -> Quota:
    """Returns a quota; one with scopes counts nothing here."""
    spec = obj.get("spec") or {}
    hard = {} if spec.get("scopes") or spec.get("scopeSelector") else spec.get("hard") or {}
    used = (obj.get("status") or {}).get("used") or {}
    return Quota(key_of(obj), obj["metadata"]["namespace"], _requests_in(hard), _requests_in(used))


def _requests_in(named: Mapping[str, str]) -> Amounts:
    """Returns the amounts of requests, which a quota names with or without the prefix, and of `pods`."""
    requests = {name.removeprefix("requests."): value for name, value in named.items()}
    return amounts({name: value for name, value in requests.items() if not name.startswith("limits.")})


def key_of(obj: Object) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


def epoch_seconds(text: str | None) -> float:
    """Returns a timestamp in seconds since the epoch; 0 if it is empty or invalid."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    return time.replace(tzinfo=time.tzinfo or UTC).timestamp()


def requests_of(spec: Object) -> Amounts:
    """Returns the requests of a pod: the maximum of containers with sidecars and of init containers, plus overhead.

    Source: component-helpers resource/helpers.go (PodRequests).
    """
    containers = total(*map(_requests, spec.get("containers") or ()))
    sidecars: Amounts = {}
    highest: Amounts = {}
    for init in spec.get("initContainers") or ():
        during = total(sidecars, _requests(init))
        highest = _most(highest, during)
        if init.get("restartPolicy") == "Always":
            sidecars = during
    most = _most(total(containers, sidecars), highest)
    return {**total(most, amounts(spec.get("overhead"))), "pods": _ONE_POD}


def _need(member: Object) -> Need:
    try:
        requests, is_readable = amounts(member.get("resources")), True
    except ValueError:
        requests, is_readable = {}, False
    return Need(
        name=member["name"],
        count=member.get("count", 1),
        requests={**requests, "pods": _ONE_POD},
        selector=member.get("nodeSelector") or {},
        is_plain=is_readable and not member.get("nodeAffinity"),
    )


def _is_preemption(condition: Object) -> bool:
    return condition["type"] == "DisruptionTarget" and condition.get("reason") == "PreemptionByScheduler"


def _requests(container: Object) -> Amounts:
    return amounts((container.get("resources") or {}).get("requests"))


def _most(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {*one, *other}}
