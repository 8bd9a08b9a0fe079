"""The resource requests of a pod, as kube-scheduler computes them.

    max(sum of containers and sidecars, maximum over init containers) + overhead

where an init container counts with the sidecars before it. Pod-level requests replace the sum for the resources that
support them. While a running pod is resized in place, the maximum of its requests and its allocated resources counts.
Each pod also requests one of `pods`.

`total_requests` takes a pod from the API server, and `member_of` a pod template, to which it first applies the defaults
of the API server: a limit without a request becomes a request.

Amounts are thousandths of a CPU, bytes, or pieces (see `quantity`). Invalid quantities raise ValueError.

Source: component-helpers resource/helpers.go (PodRequests), kubernetes pkg/scheduler/framework/types.go
(CalculateResource, Resource.Add), pkg/apis/core/v1/defaults.go (SetDefaults_Pod).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from tfjob_controller.api.common.cluster import (
    ALWAYS,
    PodCondition,
    ResizedContainer,
    Resources,
    ScheduledContainer,
    ScheduledPod,
)
from tfjob_controller.api.common.quantity import CPU, MEMORY, PODS, amount_of, is_counted, milli_of, quantity_of
from tfjob_controller.api.gang import Member

# Amounts by resource name, without zeros.
Amounts: TypeAlias = Mapping[str, int]

_RESIZE_PENDING = "PodResizePending"
_INFEASIBLE = "Infeasible"


class RequestSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a pod's spec requests."""

    containers: tuple[ScheduledContainer, ...] = ()
    init_containers: tuple[ScheduledContainer, ...] = ()
    resources: Resources | None = None
    overhead: dict[str, str] = {}


class RequestStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the kubelet has allocated."""

    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ResizedContainer, ...] = ()
    init_container_statuses: tuple[ResizedContainer, ...] = ()
    resources: Resources | None = None
    allocated_resources: dict[str, str] = {}


def requests_of(pod: ScheduledPod) -> Amounts:
    """Returns the requests of a pod, `pods` included. Invalid quantities raise ValueError."""
    if pod.requests is None:
        raise ValueError("a quantity that the pod requests is invalid")
    return pod.requests


def total_requests(spec: RequestSpec, status: RequestStatus) -> dict[str, int]:
    """Computes the requests of a pod, `pods` included. Invalid quantities raise ValueError."""
    is_infeasible = any(
        condition.type == _RESIZE_PENDING and condition.reason == _INFEASIBLE for condition in status.conditions
    )
    allocated = _allocated(spec, status, is_infeasible=is_infeasible)
    total = _total(spec.containers, spec.init_containers, allocated)
    if spec.resources is not None:
        level = _millis(spec.resources.requests)
        given = _effective_request(status.resources, status.allocated_resources, level, is_infeasible=is_infeasible)
        total |= {name: given.get(name, 0) for name in level if _is_pod_level(name)}
    add_amounts(total, _millis(spec.overhead))
    return _amounts(total)


def member_of(name: str, count: int, pod_spec: Mapping[str, Any]) -> Member:
    """The gang member whose pods are created from this template's `spec`.

    Later additions by admission plugins (the overhead of a RuntimeClass, the defaults of a LimitRange) are not in it.
    """
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    return Member(
        name=name,
        count=count,
        resources=template_requests(pod_spec),
        node_selector=dict(pod_spec.get("nodeSelector") or {}),
        tolerations=tuple(dict(toleration) for toleration in pod_spec.get("tolerations") or ()),
        node_affinity=affinity.get("requiredDuringSchedulingIgnoredDuringExecution"),
        priority_class_name=pod_spec.get("priorityClassName") or "",
    )


def template_requests(pod_spec: Mapping[str, Any]) -> dict[str, str]:
    """The requests of each pod of a template's `spec`, as quantities, without `pods`."""
    containers = [_defaulted(container) for container in pod_spec.get("containers") or ()]
    init_containers = [_defaulted(container) for container in pod_spec.get("initContainers") or ()]
    total = _total(containers, init_containers, {})
    total |= _pod_level(pod_spec.get("resources") or {}, total)
    add_amounts(total, _millis(_texts(pod_spec.get("overhead"))))
    amounts = _amounts(total)
    return {name: quantity_of(name, amount) for name, amount in sorted(amounts.items()) if name != PODS}


def amounts_of(member: Member) -> dict[str, int]:
    """The requests of each pod of a gang member, `pods` included. A negative quantity raises ValueError."""
    millis = _millis(member.resources)
    negative = sorted(name for name, value in millis.items() if value < 0)
    if negative:
        raise ValueError(f"negative quantity of {negative[0]}: {member.resources[negative[0]]!r}")
    return _amounts(millis)


def _amounts(millis: Mapping[str, int]) -> dict[str, int]:
    counted = {name: amount_of(name, milli) for name, milli in millis.items() if milli and is_counted(name)}
    return counted | {PODS: 1}


def _total(
    containers: Iterable[ScheduledContainer],
    init_containers: Iterable[ScheduledContainer],
    allocated: Mapping[str, dict[str, int]],
) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in containers:
        add_amounts(total, _request(container, allocated))
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in init_containers:
        if container.restart_policy == ALWAYS:
            request = _request(container, allocated)
            add_amounts(total, request)
            add_amounts(sidecars, request)
            needed = sidecars
        else:
            needed = dict(sidecars)
            add_amounts(needed, _millis(container.resources.requests))
        _raise_to(most, needed)
    _raise_to(total, most)
    return total


def _request(container: ScheduledContainer, allocated: Mapping[str, dict[str, int]]) -> Mapping[str, int]:
    return allocated[container.name] if container.name in allocated else _millis(container.resources.requests)


def _allocated(spec: RequestSpec, status: RequestStatus, *, is_infeasible: bool) -> dict[str, dict[str, int]]:
    """The amounts of the containers whose allocated resources the kubelet has reported."""
    statuses = {each.name: each for each in (*status.container_statuses, *status.init_container_statuses)}
    found: dict[str, dict[str, int]] = {}
    for container in (*spec.containers, *spec.init_containers):
        resized = statuses.get(container.name)
        if resized is not None and resized.resources is not None:
            wanted = _millis(container.resources.requests)
            found[container.name] = _effective_request(
                resized.resources, resized.allocated_resources, wanted, is_infeasible=is_infeasible
            )
    return found


def _effective_request(
    actuated: Resources | None, allocated: Mapping[str, str], wanted: Mapping[str, int], *, is_infeasible: bool
) -> dict[str, int]:
    """The maximum of requested, allocated and actuated resources; an infeasible request does not count."""
    if actuated is None:
        return dict(wanted)
    most = {} if is_infeasible else dict(wanted)
    _raise_to(most, _millis(actuated.requests))
    _raise_to(most, _millis(allocated))
    return most


def _defaulted(container: Mapping[str, Any]) -> ScheduledContainer:
    resources = container.get("resources") or {}
    requests = _texts(resources.get("limits")) | _texts(resources.get("requests"))
    return ScheduledContainer(container.get("name") or "", Resources(requests), container.get("restartPolicy") or "")


def _pod_level(resources: Mapping[str, Any], total: Mapping[str, int]) -> dict[str, int]:
    """Pod-level requests with the defaults of the API server: a limit counts only if no container requests it."""
    limits, requests = _millis(_texts(resources.get("limits"))), _millis(_texts(resources.get("requests")))
    if limits:
        missing = {name: value for name, value in limits.items() if name not in requests}
        requests |= {
            name: total.get(name, value) if name in (CPU, MEMORY) else value for name, value in missing.items()
        }
    return {name: value for name, value in requests.items() if _is_pod_level(name)}


def _is_pod_level(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith("hugepages-")


def _texts(quantities: Mapping[str, Any] | None) -> dict[str, str]:
    """Quantities as strings. In a template, which users write, they may be numbers."""
    return {name: str(value) for name, value in (quantities or {}).items()}


def _millis(quantities: Mapping[str, str]) -> dict[str, int]:
    return {name: milli_of(text) for name, text in quantities.items()}


def add_amounts(total: dict[str, int], amounts: Amounts, times: int = 1) -> None:
    """Adds the amounts in place; with `times=-1`, subtracts them."""
    for name, value in amounts.items():
        total[name] = total.get(name, 0) + times * value


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, value in least.items():
        total[name] = max(total[name], value) if name in total else value
