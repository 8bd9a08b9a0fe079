"""Builds a ProvisioningRequest and its PodTemplates for a gang, ready for JSON. Pure.

The request has the minimum number of pods with which the gang can start; an elastic gang grows later. The Gang owns the
request and the templates, so that they are deleted with it. Their names contain a hash of the request and of the
gang's uid, so that after a restart the same gang has the same request, and a changed spec has a new one.

The autoscaler only reads the templates. No pod is created from them, so their image is never pulled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tfjob_controller.api.gang import GANGS, REQUIRED_NODE_AFFINITY, Gang, Member
from tfjob_controller.api.provisioningrequest import NUMBER_LABEL, POD_TEMPLATES, PROVISIONING_REQUESTS
from tfjob_controller.scheduling.podsets import pod_sets_of

Body = dict[str, Any]

# The label by which the informer selects the requests of this program.
MANAGED_BY_LABEL, MANAGER = "app.kubernetes.io/managed-by", "gang-scheduler"
_NEVER_PULLED = "none"
# The parts of a name, which also has the name of the pod set, and at most 253 characters.
_GANG_NAME, _HASH = 200, 10


@dataclass(frozen=True, slots=True)
class RequestBodies:
    """The objects of one request. The templates are created first, since the request refers to them."""

    name: str
    request: Body
    templates: tuple[Body, ...]

    @property
    def pods(self) -> int:
        """The number of pods in the request."""
        return sum(pod_set["count"] for pod_set in self.request["spec"]["podSets"])


def request_bodies(gang: Gang, class_name: str, number: int) -> RequestBodies:
    """Returns the bodies of a gang's request. Raises ValueError for an invalid quantity in the spec."""
    counts = {pod_set.name: pod_set.min_count for pod_set in pod_sets_of(gang.spec) if pod_set.min_count}
    specs = {member.name: _pod_spec(member) for member in gang.spec.members if member.name in counts}
    hashed = msgspec.json.encode([gang.metadata.uid, class_name, number, counts, specs], order="deterministic")
    name = f"{gang.metadata.name[:_GANG_NAME].rstrip('.-')}-{hashlib.sha256(hashed).hexdigest()[:_HASH]}"
    labels = {MANAGED_BY_LABEL: MANAGER, NUMBER_LABEL: str(number)}
    spec = {
        "provisioningClassName": class_name,
        "podSets": [
            {"podTemplateRef": {"name": f"{name}-{kind}"}, "count": count} for kind, count in sorted(counts.items())
        ],
    }
    request = {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": _metadata(gang, name, labels),
        "spec": spec,
    }
    templates = [
        {
            "apiVersion": POD_TEMPLATES.api_version,
            "kind": POD_TEMPLATES.kind,
            "metadata": _metadata(gang, f"{name}-{kind}", labels),
            "template": {"spec": specs[kind]},
        }
        for kind in sorted(counts)
    ]
    return RequestBodies(name, request, tuple(templates))


def _metadata(gang: Gang, name: str, labels: Mapping[str, str]) -> Body:
    meta = gang.metadata
    owner = {"apiVersion": GANGS.api_version, "kind": GANGS.kind, "name": meta.name, "uid": meta.uid}
    return {"name": name, "namespace": meta.namespace, "labels": dict(labels), "ownerReferences": [owner]}


def _pod_spec(member: Member) -> Body:
    # Resources that cannot be overcommitted must have equal limits.
    limits = {name: amount for name, amount in member.resources.items() if _has_equal_limit(name)}
    spec: Body = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": member.name,
                "image": _NEVER_PULLED,
                "resources": {"requests": dict(member.resources), **({"limits": limits} if limits else {})},
            }
        ],
    }
    if member.node_selector:
        spec["nodeSelector"] = dict(member.node_selector)
    if member.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in member.tolerations]
    if member.node_affinity is not None:
        spec["affinity"] = {"nodeAffinity": {REQUIRED_NODE_AFFINITY: member.node_affinity}}
    if member.priority_class_name:
        spec["priorityClassName"] = member.priority_class_name
    return spec


def _has_equal_limit(resource: str) -> bool:
    return resource.startswith("hugepages-") or ("/" in resource and not resource.startswith("kubernetes.io/"))
