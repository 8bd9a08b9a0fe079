"""Asks the API server what a requester may do. Source: SelfSubjectAccessReview of authorization.k8s.io/v1."""

from __future__ import annotations

from typing import Any

import msgspec

from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.kube.requester import Requester

_REVIEWS: Resource[Any] = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


def may(
    requester: Requester, verb: str, resource: Resource[Object], namespace: str = "", subresource: str = ""
) -> bool:
    """Whether the API server lets the requester do that; without a namespace, in all of them. Raises `ApiError`."""
    attributes = {
        "verb": verb,
        "group": resource.group,
        "resource": resource.plural,
        "subresource": subresource,
        "namespace": namespace,
    }
    body = msgspec.json.encode(
        {
            "apiVersion": _REVIEWS.api_version,
            "kind": _REVIEWS.kind,
            "spec": {"resourceAttributes": {name: value for name, value in attributes.items() if value}},
        }
    )
    answer = requester.request("POST", _REVIEWS.path(), body=body, timeout_seconds=10.0, retry=False)
    return msgspec.json.decode(answer, type=_Review).status.allowed
