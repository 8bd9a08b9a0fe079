"""Validates a manifest before it is sent to the API server.

The API server would refuse most invalid manifests as well. Only the controller notices that a runtime does not exist,
or that Kubernetes refuses the pods of the job: `check_children` reports both before the job is created.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tfjob_controller.api.common.core import JOBS
from tfjob_controller.api.common.managedby import is_managed_here
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.kinds import AnyJob, kind_of_manifest
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.client import DRY_RUN, STRICT
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.names import name_violation, namespace_violation
from tfjob_controller.kube.requester import Requester

if TYPE_CHECKING:
    from tfjob_controller.jobs.plan.model import Plan, Replica

# Stands for the characters that the API server adds to a `generateName`.
_SUFFIX = "00000"
# Errors show this many fields.
_SHOWN = 3
# The part of a field's path in a child Job that users do not know.
_TEMPLATE = "spec.template."


@dataclass(frozen=True, slots=True)
class ValidManifest:
    """A job that can be created in `namespace` by sending `body`. `name` is made up where the server chooses it."""

    kind: ClientKind
    namespace: str
    name: str
    body: bytes
    job: AnyJob


def validate_manifest(manifest: Mapping[str, Any], namespace: str) -> ValidManifest:
    """Validates a manifest, which is for `namespace` if it names none. Raises `ClientError` if it is invalid."""
    kind = kind_of_manifest(manifest)
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise ClientError("metadata.name: is required: give the job a name")
    if not (where := metadata.get("namespace") or namespace):
        raise ClientError("metadata.namespace: is required: give the job a namespace")
    try:
        body = msgspec.json.encode({**manifest, "metadata": {**metadata, "namespace": where}})
    except (TypeError, ValueError) as error:
        raise ClientError(f"the manifest has a value that JSON cannot represent: {error}") from None
    try:
        job = kind.resource.decode(body)
    except msgspec.MsgspecError as error:
        raise ClientError(f"the manifest is not a {kind.resource.kind}: {error}") from None
    for field, violation in _name_violations(metadata, where):
        if violation:
            raise ClientError(f"metadata.{field}: {violation}")
    if (problem := kind.problem_of(job)) is not None:
        raise ClientError(problem)
    name = metadata.get("name") or f"{metadata['generateName']}{_SUFFIX}"
    return ValidManifest(kind, where, name, body, job)


def _name_violations(metadata: Mapping[str, Any], namespace: str) -> Iterator[tuple[str, str]]:
    """The API server repeats the whole name, which it refuses."""
    yield "name", name_violation(str(metadata["name"])) if metadata.get("name") else ""
    # What the server appends begins with a letter or digit.
    prefix = str(metadata.get("generateName") or "").rstrip("-.")
    yield "generateName", name_violation(prefix) if prefix else ""
    yield "namespace", namespace_violation(namespace)


def check_children(requester: Requester, manifest: ValidManifest) -> None:
    """Raises `ClientError` if the controller or Kubernetes would refuse the children of the job.

    The children are compiled as the controller compiles them, and the API server is asked in a dry run whether it
    would create the first of each role. What the user may not read or create is not checked. Raises `ApiError` if the
    server does not respond.
    """
    # These load much that other commands do not need.
    from tfjob_controller.jobs.actions.children import build_job
    from tfjob_controller.jobs.plan.model import UnplannableError

    job: Any = manifest.job
    if not is_managed_here(job.spec.managed_by):
        return
    metadata = msgspec.structs.replace(job.metadata, name=manifest.name, namespace=manifest.namespace)
    try:
        plan = manifest.kind.preview_of(msgspec.structs.replace(job, metadata=metadata), requester)
        bodies = [(replica, build_job(plan, replica)) for replica in _one_of_each_template(plan)] if plan else []
    except UnplannableError as error:
        raise ClientError(str(error)) from None
    for replica, body in bodies:
        # The owner does not exist yet.
        del body["metadata"]["ownerReferences"]
        try:
            path = JOBS.path(manifest.namespace)
            requester.request("POST", path, body=msgspec.json.encode(body), query=STRICT | DRY_RUN)
        except ApiError as error:
            if error.is_retryable:
                raise
            if problem := _template_problem(error):
                raise ClientError(f"Kubernetes refuses the pods of {replica.role.name}: {problem}") from None


def _one_of_each_template(plan: Plan) -> Iterator[Replica]:
    """The chief comes first."""
    templates: list[Mapping[str, Any]] = []
    for replica in plan.replicas.all:
        if not any(replica.template is template for template in templates):
            templates.append(replica.template)
            yield replica


def _template_problem(error: ApiError) -> str:
    """The fields that are wrong; empty if the request was refused for another reason, such as a missing right."""
    fields = [
        f"{path.removeprefix(_TEMPLATE)}: {message}" for path, message in error.causes if path.startswith(_TEMPLATE)
    ]
    if fields:
        more = f"; and {len(fields) - _SHOWN} more" if len(fields) > _SHOWN else ""
        return "; ".join(fields[:_SHOWN]) + more
    _, decoding, problems = error.message.partition("strict decoding error: ")
    return problems.replace(_TEMPLATE, "") if decoding else ""
