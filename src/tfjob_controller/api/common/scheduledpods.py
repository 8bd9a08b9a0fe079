"""Decodes pods as a scheduler keeps them: a few hundred bytes each, whatever they contain.

The gang scheduler watches all pods of the cluster, and their authors decide what is in them. So their requests are
added up while a pod is decoded, and of the rest only names, the phase and the labels of gangs are kept. A pod that the
gang scheduler is to pin to a node keeps its gates and its required node affinity within the bounds of a Gang's member;
one beyond them stays gated. Tolerations and selectors are not read: those of a gang are in its Gang.

Of more than `MAX_RESOURCES` resources those count that each node has, and the others by name up to this number. No node
has that many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from tfjob_controller.api.common.cluster import (
    Resources,
    ScheduledContainer,
    ScheduledPod,
    ScheduledPodSpec,
    ScheduledPodStatus,
    SchedulingGate,
)
from tfjob_controller.api.common.core import PODS
from tfjob_controller.api.common.podrequests import RequestSpec, RequestStatus, total_requests
from tfjob_controller.api.common.quantity import is_native
from tfjob_controller.api.gang import (
    ATTEMPT_LABEL,
    COMPLETION_INDEX_LABEL,
    GANG_LABEL,
    MEMBER_KIND_LABEL,
    MEMBER_LABEL,
    PLACEMENT_GATE,
    REQUIRED_NODE_AFFINITY,
    Member,
    bounds_problem,
)
from tfjob_controller.kube.kept import kept_decoder, within_name
from tfjob_controller.kube.meta import ObjectMeta

AmountT = TypeVar("AmountT", int, str)

GANG_LABELS = (GANG_LABEL, MEMBER_LABEL, MEMBER_KIND_LABEL, COMPLETION_INDEX_LABEL, ATTEMPT_LABEL)
MAX_RESOURCES = 64
MAX_GATES = 16
MAX_AFFINITY_BYTES = 64 * 1024
_UNSCHEDULABLE = "Unschedulable"
_NO_AFFINITY = msgspec.Raw(b"null")


class _NodeAffinity(msgspec.Struct, frozen=True):
    required: msgspec.Raw = msgspec.field(default=_NO_AFFINITY, name=REQUIRED_NODE_AFFINITY)


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Spec(RequestSpec, frozen=True, rename="camel"):
    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    affinity: _Affinity | None = None
    priority_class_name: str = ""


class _Status(RequestStatus, frozen=True, rename="camel"):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


def scheduled_pod_decoder(labels: Collection[str]) -> Callable[[bytes | msgspec.Raw], ScheduledPod]:
    """Returns a decoder that keeps these labels; it raises msgspec.DecodeError."""
    decode_whole = kept_decoder(_Pod, labels)

    def decode(raw: bytes | msgspec.Raw) -> ScheduledPod:
        pod = decode_whole(raw)
        is_unschedulable = any(condition.reason == _UNSCHEDULABLE for condition in pod.status.conditions)
        status = ScheduledPodStatus(within_name(pod.status.phase), is_unschedulable)
        return ScheduledPod(pod.metadata, _spec(pod), status, _requests(pod))

    return decode


SCHEDULED_PODS = PODS.with_decoder(scheduled_pod_decoder(GANG_LABELS))


def _spec(pod: _Pod) -> ScheduledPodSpec:
    gates = pod.spec.scheduling_gates
    kept = ScheduledPodSpec(
        within_name(pod.spec.node_name), priority_class_name=within_name(pod.spec.priority_class_name)
    )
    is_ours = GANG_LABEL in pod.metadata.labels and any(gate.name == PLACEMENT_GATE for gate in gates)
    if not is_ours or len(gates) > MAX_GATES:
        return kept
    try:
        return replace(kept, scheduling_gates=gates, required_affinity=_required(pod.spec.affinity))
    except msgspec.DecodeError:
        return kept


def _required(affinity: _Affinity | None) -> dict[str, Any] | None:
    """Returns the required node affinity. Raises msgspec.DecodeError if it is beyond the bounds."""
    raw = affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else b""
    data = bytes(raw) or bytes(_NO_AFFINITY)
    if len(data) > MAX_AFFINITY_BYTES:
        raise msgspec.DecodeError("affinity too large")
    required = msgspec.json.decode(data, type=dict[str, Any] | None)
    if problem := bounds_problem(Member("pod", node_affinity=required)):
        raise msgspec.DecodeError(problem)
    return required


def _requests(pod: _Pod) -> dict[str, int] | None:
    try:
        return _bounded(total_requests(_bounded_spec(pod.spec), pod.status))
    except ValueError:
        return None


def _bounded_spec(spec: _Spec) -> _Spec:
    containers = (*spec.containers, *spec.init_containers)
    if max((len(spec.overhead), *(len(container.resources.requests) for container in containers))) <= MAX_RESOURCES:
        return spec
    return replace(
        spec,
        containers=tuple(map(_bounded_container, spec.containers)),
        init_containers=tuple(map(_bounded_container, spec.init_containers)),
        overhead=_bounded(spec.overhead),
    )


def _bounded_container(container: ScheduledContainer) -> ScheduledContainer:
    return replace(container, resources=Resources(_bounded(container.resources.requests)))


def _bounded(amounts: dict[str, AmountT]) -> dict[str, AmountT]:
    if len(amounts) <= MAX_RESOURCES:
        return amounts
    names = sorted(amounts, key=lambda name: (not is_native(name), name))
    return {name: amounts[name] for name in names[:MAX_RESOURCES]}
