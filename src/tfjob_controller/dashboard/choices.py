"""What the form for a new job offers in a cluster to one person: kinds, namespaces, runtimes, claims, GPU resources.

A person who may not list something gets a text field instead, and so does everybody where a list is long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tfjob_controller.api.common.accelerators import is_accelerator
from tfjob_controller.api.common.cluster import NAMESPACES, NODES
from tfjob_controller.api.common.core import PERSISTENT_VOLUME_CLAIMS
from tfjob_controller.dashboard.jobform import FORM_KINDS, FORMS
from tfjob_controller.dashboard.users import User
from tfjob_controller.kinds.podform import GPU
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import Resource
from tfjob_controller.kube.names import namespace_violation
from tfjob_controller.kube.requester import JSON

MAX_CHOICES = 500
# Nodes are large, and those of one cluster have few different resources.
_MAX_NODES = 100
_TIMEOUT_SECONDS = 5.0
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
# Offered in every cluster.
_COMMON_GPUS = (GPU, "amd.com/gpu", "gpu.intel.com/xe", "google.com/tpu", "habana.ai/gaudi")
# Namespaces in which nobody trains.
_SYSTEM_PREFIX = "kube-"


@dataclass(frozen=True, slots=True)
class Choices:
    """Texts as they are in the fields. None stands for what the person may not list, or for more than `MAX_CHOICES`."""

    kinds: Sequence[str] = tuple(FORMS)
    namespaces: Sequence[str] | None = None
    cluster_runtimes: Sequence[str] | None = None
    runtimes: Sequence[str] | None = None
    claims: Sequence[str] | None = None
    gpu_resources: Sequence[str] = _COMMON_GPUS


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Item(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _ListMetadata(msgspec.Struct, frozen=True):
    next: str = msgspec.field(name="continue", default="")


class _Names(msgspec.Struct, frozen=True):
    metadata: _ListMetadata = _ListMetadata()
    items: tuple[_Item, ...] | None = None


class _NodeStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, str] = {}


class _Node(msgspec.Struct, frozen=True):
    status: _NodeStatus = _NodeStatus()


class _Nodes(msgspec.Struct, frozen=True):
    items: tuple[_Node, ...] | None = None


_decode_names, _decode_nodes = decoder_for(_Names), decoder_for(_Nodes)


def read_choices(user: User, namespace: str) -> Choices:
    """What there is for a job in this namespace. Raises `ApiError`, and `ClientError`."""
    served = user.client.kinds()
    kinds = tuple(kind for kind, client_kind in FORM_KINDS.items() if client_kind in served)
    has_namespace = bool(namespace) and not namespace_violation(namespace)
    runtimes = [resource for kind in kinds for resource in FORMS[kind].runtimes]
    of_cluster = [_names(user, resource) for resource in runtimes if not resource.namespaced]
    of_namespace = [
        _with_kind(resource, _names(user, resource, namespace)) if has_namespace else ()
        for resource in runtimes
        if resource.namespaced
    ]
    namespaces = _names(user, NAMESPACES)
    return Choices(
        kinds or tuple(FORMS),
        namespaces and tuple(name for name in namespaces if not name.startswith(_SYSTEM_PREFIX)),
        _all_of(of_cluster),
        _all_of(of_namespace),
        _names(user, PERSISTENT_VOLUME_CLAIMS, namespace) if has_namespace else None,
        tuple(dict.fromkeys((*_gpus_of_nodes(user), *_COMMON_GPUS))),
    )


def _with_kind(resource: Resource[Any], names: Sequence[str] | None) -> Sequence[str] | None:
    return None if names is None else [f"{resource.kind}/{name}" for name in names]


def _all_of(lists: Sequence[Sequence[str] | None]) -> Sequence[str] | None:
    """The names of all lists; None if one of them is missing."""
    known = [names for names in lists if names is not None]
    return [name for names in known for name in names] if len(known) == len(lists) else None


def _names(user: User, resource: Resource[Any], namespace: str = "") -> tuple[str, ...] | None:
    body = _answer(user, resource, namespace, MAX_CHOICES, _METADATA)
    found = _decode_names(body) if body is not None else None
    if found is None or found.metadata.next:
        return None
    return tuple(sorted(item.metadata.name for item in found.items or ()))


def _gpus_of_nodes(user: User) -> list[str]:
    body = _answer(user, NODES, "", _MAX_NODES, JSON)
    nodes = _decode_nodes(body).items if body is not None else None
    amounts: list[Mapping[str, str]] = [node.status.allocatable for node in nodes or ()]
    return sorted({name for each in amounts for name, amount in each.items() if amount != "0" and is_accelerator(name)})


def _answer(user: User, resource: Resource[Any], namespace: str, limit: int, accept: str) -> bytes | None:
    """The list, or None if the cluster lacks the kind or the person the right."""
    query = {"limit": str(limit)}
    try:
        return user.requester.request(
            "GET", resource.path(namespace), query=query, accept=accept, timeout_seconds=_TIMEOUT_SECONDS, retry=False
        )
    except ApiError as error:
        if error.is_forbidden or error.is_not_found:
            return None
        raise
