"""Errors of the client: one sentence each, with the remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfjob_controller.kinds.names import KIND_NAMES
from tfjob_controller.kube.errors import NOT_FOUND_REASON, PROXY_NOT_CONNECTED, ApiError

if TYPE_CHECKING:
    from tfjob_controller.kinds.clientkind import ClientKind

# The reason of errors after the transport was closed.
CLOSED = "Closed"
_READS = ("get", "list", "watch")
# Source: apiserver pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage.
_OF_CLUSTER = re.compile(r' cannot (\S+) resource "([^"]+)" in API group "[^"]*" at the cluster scope')
# What the roles `view` and `edit` allow in namespaces, as far as the client requests it.
_IN_NAMESPACES = (*(name.plural for name in KIND_NAMES), "trainingruntimes", "gangs", "pods", "jobs", "events")
# It may list nodes, and the pods and gangs of all namespaces.
CLUSTER_VIEWER = "tfjob-cluster-viewer"
# The ClusterRoles that allow to read what is in no namespace.
_READ_BY = {"clustertrainingruntimes": "view", "namespaces": "view", "nodes": CLUSTER_VIEWER}
LISTING = "`kubectl tfjob list -A`"


class ClientError(Exception):
    """The call cannot be carried out. The message is one line, made to be shown as it is.

    `api_error` is the error of the API server, if there was one.
    """

    def __init__(self, message: str, api_error: ApiError | None = None) -> None:
        super().__init__(message)
        self.api_error = api_error


class AmbiguousNameError(ClientError):
    """Jobs of several kinds, `kinds`, have that name, and no kind was given."""

    def __init__(self, message: str, kinds: Sequence[ClientKind]) -> None:
        super().__init__(message)
        self.kinds = kinds


class JobEndedError(ClientError):
    """The job has ended, and the condition can no longer be reached. `reason` is the job's."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class JobFailedError(JobEndedError):
    """The job has failed."""


class JobDeletedError(ClientError):
    """The job no longer exists, or another job has its name."""


class WaitTimeoutError(ClientError):
    """The condition was not reached in time. The job continues."""


def error_text(error: ApiError, server: str, listing: str = LISTING) -> str:
    """The server's message and the remedy.

    `server` describes the address of the server and where it is configured; `listing` is the command that lists jobs.
    """
    remedy = _remedy(error, server, listing)
    return f"{error.message}: {remedy}" if remedy else error.message


def _remedy(error: ApiError, server: str, listing: str) -> str:
    if error.reason == CLOSED:
        return "make a new Client"
    if error.outcome_unknown:
        return f"the request may have been processed: check before you try again ({server})"
    if error.reason == PROXY_NOT_CONNECTED:
        return f"check that the proxy runs and reaches the API server of {server}"
    if error.is_no_response:
        return f"check that the API server of {server} runs"
    if error.is_unauthorized:
        return f"{server} rejected your credentials, which may have expired: log in again"
    if error.is_forbidden:
        return _role(error.message)
    if not error.is_not_found:
        return ""
    if error.reason == NOT_FOUND_REASON and error.message.startswith('namespaces "'):
        return "create it, or choose another namespace"
    if not error.is_unknown_kind:
        return f"{listing} shows those that exist"
    apply = "`kubectl apply --server-side -k manifests/overlays/crds`"
    return f"the cluster lacks this kind: {apply} (crds-kubeflow-v1 with TFJobs of v1), or choose another context"


def _role(message: str) -> str:
    """A refusal by RBAC names a verb; the message of a quota or an admission policy already explains the refusal."""
    if " cannot impersonate " in message:
        return "ask an administrator for the right to act as that user"
    if match := _OF_CLUSTER.search(message):
        verb, resource = match[1], match[2].partition("/")[0]
        role = _READ_BY.get(resource, "") if verb in _READS else ""
        return role_remedy(verb in _READS) if resource in _IN_NAMESPACES else cluster_role_remedy(role)
    _, cannot, rest = message.partition(" cannot ")
    if not cannot and " is forbidden: " in message:
        return ""
    return role_remedy(not cannot or rest.split(" ")[0] in _READS, "that namespace")


def role_remedy(reads: bool, where: str = "") -> str:
    """Who can give a right in a namespace (`where`), or in all namespaces, on what Kubernetes' roles of users allow."""
    role = "view" if reads else "edit"
    return f"ask for the role `{role}` in {where}" if where else f"choose one namespace, or {cluster_role_remedy(role)}"


def cluster_role_remedy(role: str) -> str:
    """Who can give what a ClusterRole allows in all namespaces and outside them; "" for one that has no name here."""
    right = f"to bind the ClusterRole `{role}` to you (a ClusterRoleBinding)" if role else "for this right"
    return f"ask a cluster administrator {right}"
