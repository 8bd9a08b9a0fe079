"""The largest and most expensive objects that the API server takes: 1.5 MB of each thing that an author may repeat.

The API server bounds an object at 1.5 MB, its annotations at 256 KB, and the value of a label at 63 characters. Labels,
owner references, finalizers, containers, tolerations, ports and the like have no bound but the first
(apimachinery pkg/api/validation, pkg/apis/core/validation, 1.36).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

SIZE = 1_450_000
Body = dict[str, Any]
Parts = Iterator[tuple[str, Body]]

_GATE = {"name": "scheduling.kubeflow.org/placement"}
_CONTAINER = {"name": "c", "image": "i"}


@functools.cache
def _entries(pattern: str, size: int) -> str:
    count = size // len(pattern % 0x10000 + ",")
    return ",".join(pattern % (0x10000 + number) for number in range(count))


def many(pattern: str, first: Sequence[object] = (), size: int = SIZE) -> msgspec.Raw:
    """A list of different entries, after the `first` ones."""
    before = "".join(msgspec.json.encode(each).decode() + "," for each in first)
    return msgspec.Raw(f"[{before}{_entries(pattern, size)}]".encode())


def fields(pattern: str, first: Mapping[str, object] | None = None, size: int = SIZE) -> msgspec.Raw:
    """An object of different fields, after the `first` ones."""
    before = "".join(f'"{name}":{msgspec.json.encode(each).decode()},' for name, each in (first or {}).items())
    return msgspec.Raw(f"{{{before}{_entries(pattern, size)}}}".encode())


def owner(api_version: str, kind: str, **more: Any) -> Body:
    """The reference of a controller."""
    return {"apiVersion": api_version, "kind": kind, "name": "train", "uid": "u1", "controller": True, **more}


def worst_metadata(labels: Body, ours: Body | None) -> Parts:
    """All that anybody may repeat in metadata. `labels` are those of a watched object, `ours` its controller."""
    owners = [ours] if ours is not None else []
    short = fields('"%x":""', labels)
    yield "short labels", {"labels": short, "ownerReferences": owners}
    yield "short labels and no controller", {"labels": short}
    yield "short labels and another controller", {"labels": short, "ownerReferences": [owner("v1", "Other")]}
    yield "long labels", {"labels": fields(f'"%x.{"x" * 240}/{"y" * 57}":"{"z" * 63}"', labels)}
    one = '{"apiVersion":"v","kind":"K","name":"n","uid":"%x"}'
    yield "owners", {"labels": labels, "ownerReferences": many(one, owners)}
    long_owner = (ours or owner("v1", "Other")) | {"uid": "u" * SIZE}
    yield "a long owner", {"labels": labels, "ownerReferences": [long_owner]}
    yield "annotations", {"labels": labels, "annotations": _ANNOTATIONS, "ownerReferences": owners}
    yield "finalizers", {"labels": labels, "finalizers": many('"a/%x"'), "ownerReferences": owners}
    written = [{"manager": "m", "fieldsV1": {"f:spec": fields('"f:%x":{}')}}]
    yield "managed fields", {"labels": labels, "ownerReferences": owners, "managedFields": written}


# Those that are read: together no more than is allowed.
_ANNOTATIONS = {
    "kubeflow.org/steps": "9" * 80_000,
    "scheduling.kubeflow.org/queue-weight": "9" * 80_000,
    "scheduling.kubeflow.org/checkpoint-time": "9" * 80_000,
}


def worst_pod_specs() -> Parts:
    """Pods that never have to run."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    yield "tolerations", {"containers": [_CONTAINER], "tolerations": many('{"key":"%x"}')}
    yield "a selector", {"containers": [_CONTAINER], "nodeSelector": fields('"%x":""')}
    yield "containers", {"containers": many('{"name":"%x","image":"i"}')}
    yield "sidecars", {"containers": [_CONTAINER], "initContainers": many('{"name":"%x","restartPolicy":"Always"}')}
    requests = {"requests": fields('"a/%x":"1"', size=SIZE // 2)}
    yield "resources", {"containers": [{**_CONTAINER, "resources": requests}]}
    yield "environment", {"containers": [{**_CONTAINER, "env": many('{"name":"%x"}')}]}
    yield "ports", {"containers": [{**_CONTAINER, "ports": many('{"name":"%x","containerPort":1}')}]}
    yield "volumes", {"containers": [_CONTAINER], "volumes": many('{"name":"%x","emptyDir":{}}')}
    yield "a scheduler's name", {"containers": [_CONTAINER], "schedulerName": "s" * SIZE}
    yield "a node's name", {"containers": [_CONTAINER], "nodeName": "n" * SIZE}
    yield "a class", {"containers": [_CONTAINER], "priorityClassName": "c" * SIZE}
    yield "gates", {"containers": [_CONTAINER], "schedulingGates": many('{"name":"a/%x"}', [_GATE])}
    for part in ("matchExpressions", "matchFields"):
        terms = many(f'{{"{part}":[{{"key":"%x","operator":"Exists"}}]}}')
        affinity = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}
        yield part, {"containers": [_CONTAINER], "schedulingGates": [_GATE], "affinity": affinity}


def worst_pod_statuses() -> Parts:
    """What kubelets and schedulers report of pods whose names and images the author has chosen."""
    yield "container statuses", {"containerStatuses": many('{"name":"%x","state":{}}')}
    yield "init container statuses", {"initContainerStatuses": many('{"name":"%x","state":{}}')}
    waiting = {"waiting": {"reason": "InvalidImageName", "message": "m" * SIZE}}
    yield "an image's name", {"containerStatuses": [{"name": "tensorflow", "state": waiting}]}
    yield "conditions", {"conditions": many('{"type":"%x","reason":"Unschedulable"}')}
    yield "a message", {"message": "m" * SIZE, "reason": "Evicted"}
    yield "a phase", {"phase": "p" * SIZE}


def _pods() -> Parts:
    yield from ((name, {"spec": spec}) for name, spec in worst_pod_specs())
    yield from ((name, {"status": status}) for name, status in worst_pod_statuses())


def _conditions() -> Body:
    return {"status": {"conditions": many('{"type":"%x","status":"True","message":"m"}')}}


def _template() -> Body:
    return {"spec": {"containers": many('{"name":"%x","image":"i"}')}}


def _jobs() -> Parts:
    yield "a template", {"spec": {"template": _template()}}
    yield "conditions", _conditions()


def _services() -> Parts:
    yield "ports", {"spec": {"ports": many('{"name":"%x","port":1}')}}
    yield "addresses", {"spec": {"externalIPs": many('"::%x"')}}


def _data() -> Parts:
    yield "data", {"data": fields('"%x":""')}


def _autoscalers() -> Parts:
    yield "metrics", {"spec": {"maxReplicas": 3, "metrics": many('{"type":"%x"}')}}
    yield "conditions", _conditions()


def _gang_objects() -> Parts:
    yield "resources", {"spec": {"minMember": 1, "minResources": fields('"a/%x":"1"')}}
    yield "pod sets", {"spec": {"podSets": many('{"name":"%x","count":1}')}}
    yield "a template", {"spec": {"podSets": [{"name": "a", "count": 1, "template": _template()}]}}
    yield "a queue", {"spec": {"queueName": "q" * SIZE, "queue": "q"}}
    yield "conditions", _conditions()
    yield from small_gang_objects()


def small_gang_objects() -> Parts:
    """Those within each bound on bytes that are the largest as Python objects."""
    yield "resources of 13 KB", {"spec": {"minResources": {f"a/{n:x}": "1" for n in range(900)}}}
    yield "resources within the bounds", {"spec": {"minResources": {f"{n:x}".rjust(50, "a"): "1" for n in range(64)}}}
    yield "resources of another alphabet", {"spec": {"minResources": {f"\U0001f600{n:x}": "1" for n in range(64)}}}
    pod_sets = [{"name": f"{n:x}".rjust(4096, "p"), "count": 1000 + n} for n in range(300)]
    yield "names of pod sets", {"spec": {"podSets": pod_sets}}
    yield "texts of another alphabet", {"spec": dict.fromkeys(("queue", "queueName"), "\U0001f600" * 4096)}
    texts = ("type", "status", "reason", "message", "lastTransitionTime")
    conditions = [{name: f"{n:x}{name}\U0001f600".ljust(4096, "c") for name in texts} for n in range(60)]
    yield "texts of conditions", {"status": {"phase": "p" * 4096, "conditions": conditions}}


def _quotas() -> Parts:
    yield "amounts", {"spec": {"hard": fields('"a/%x":"1"')}}
    yield "usage", {"status": {"used": fields('"a/%x":"1"')}}
    yield "scopes", {"spec": {"scopes": many('"s%x"')}}


def _provisioning_requests() -> Parts:
    yield "pod sets", {"spec": {"podSets": many('{"podTemplateRef":{"name":"%x"}}')}}
    yield "parameters", {"spec": {"parameters": fields('"%x":""')}}
    yield "conditions", _conditions()


def _gangs() -> Parts:
    yield "members", {"spec": {"members": many('{"name":"w%x"}')}}
    yield "tolerations", {"spec": {"members": [{"name": "w", "tolerations": many('{"key":"%x"}')}]}}
    yield "resources", {"spec": {"members": [{"name": "w", "resources": fields('"a/%x":"1"')}]}}
    yield "counts", {"spec": {"minMembers": fields('"w%x":1')}}


def deep(levels: int, count: int, after: str = "") -> msgspec.Raw:
    """A list of lists that are nested so deep, and then of as many other values as there may be."""
    lists = _lists(levels, count)
    others = f",{after}" * ((SIZE - len(lists)) // (len(after) + 1)) if after else ""
    return msgspec.Raw(f"[{lists}{others}]".encode())


def _lists(levels: int, count: int) -> str:
    return ",".join(["[" * levels + "]" * levels] * count)


def _deep_values() -> Iterator[tuple[str, msgspec.Raw]]:
    """A CRD that leaves a field open bounds neither the levels nor the number of the values in it."""
    yield "one deep list and many objects", deep(210, 1, "{}")
    yield "many deep lists", deep(300, SIZE // 601)
    yield "a list too deep to be skipped and many objects", deep(1200, 1, "{}")
    yield "many lists too deep to be skipped", deep(1200, SIZE // 2401)
    bottom = "[" * 198 + "1" + ",[],11" * (SIZE // 6 - 600) + "]" * 198
    yield "a deep list and many at the last level", msgspec.Raw(f"[{_lists(1200, 1)},{bottom}]".encode())


def _own_kinds() -> Parts:
    yield "a template", {"spec": {"template": _template()}}
    yield "values", {"spec": {"template": {"x": many("%d")}}}
    for name, value in _deep_values():
        yield name, {"spec": {"template": {"x": value}}}
    yield "many deep lists in the status", {"spec": {}, "status": {"x": deep(300, SIZE // 601)}}
    entries = {"fieldsV1": {"f:spec": fields('"f:%x":{}')}}
    spec = {"template": {"x": deep(210, 1)}}
    yield "managed fields of a deep object", {"metadata": {"managedFields": [entries]}, "spec": spec}


def _plain() -> Parts:
    yield "a description", {"description": "d" * SIZE}


def _rights() -> Parts:
    rule = '{"apiGroups":[""],"resources":["pods"],"verbs":["%x"]}'
    yield "rules", {"rules": many(rule)}
    yield "names in a rule", {"rules": [{"verbs": ["get"], "resourceNames": many('"%x"')}]}
    yield "subjects", {"subjects": many('{"kind":"User","name":"%x"}')}


def _accounts() -> Parts:
    yield "secrets", {"secrets": many('{"name":"%x"}')}


_BY_KIND = {
    "Pod": _pods,
    "Job": _jobs,
    "Service": _services,
    "ConfigMap": _data,
    "Role": _rights,
    "RoleBinding": _rights,
    "ServiceAccount": _accounts,
    "HorizontalPodAutoscaler": _autoscalers,
    "PodGroup": _gang_objects,
    "Workload": _gang_objects,
    "ResourceQuota": _quotas,
    "ProvisioningRequest": _provisioning_requests,
    "Gang": _gangs,
    "Namespace": _plain,
    "PriorityClass": _plain,
    "TFJob": _own_kinds,
    "TrainJob": _own_kinds,
    "TrainingRuntime": _own_kinds,
}


def worst_objects(kind: str, labels: Body, ours: Body | None) -> Iterator[tuple[str, bytes]]:
    """By name, the lines of a watch that announce the worst objects of a kind."""
    owners = [ours] if ours is not None else []
    own = {"labels": labels, "ownerReferences": owners}
    parts = [(f"metadata: {name}", {"metadata": metadata}) for name, metadata in worst_metadata(labels, ours)]
    parts += [(name, {"metadata": own, **body}) for name, body in _BY_KIND[kind]()]
    for number, (name, body) in enumerate(parts):
        identity = {"name": f"x{number}", "namespace": "team", "uid": f"u{number}", "resourceVersion": "5"}
        obj = {"kind": kind, **body, "metadata": identity | body["metadata"]}
        yield name, msgspec.json.encode({"type": "ADDED", "object": obj})
