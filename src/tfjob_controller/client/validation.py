"""Validates a manifest before it is sent to the API server.

The API server would refuse most invalid manifests as well. Only the controller notices that a runtime does not exist,
or that Kubernetes refuses the pods of the job: `check_children` reports both before the job is created. What admission
refuses for now, such as pods beyond a quota or with a PriorityClass that does not exist, is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tfjob_controller.api.common.core import JOBS, PODS
from tfjob_controller.api.common.managedby import is_managed_here
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.kinds import kind_of_manifest
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.client import DRY_RUN, STRICT
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import Resource
from tfjob_controller.kube.names import image_violation, name_violation, namespace_violation
from tfjob_controller.kube.requester import Requester

if TYPE_CHECKING:
    from tfjob_controller.jobs.plan.model import Plan, Replica

# Stands for the characters that the API server adds to a `generateName`.
_SUFFIX = "00000"
# What it keeps of a longer one.
_MAX_PREFIX = 58
# Errors show this many fields.
_SHOWN = 3
# The part of a field's path in a child Job that users do not know.
_TEMPLATE = "spec.template."


@dataclass(frozen=True, slots=True)
class ValidManifest:
    """A job that can be created in `namespace` by sending `body`.

    The name of `job`, of its kind, is made up where the server chooses it.
    """

    kind: ClientKind
    namespace: str
    body: bytes
    job: Any


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
    name = metadata.get("name") or f"{str(metadata['generateName'])[:_MAX_PREFIX]}{_SUFFIX}"
    job = msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, name=name, namespace=where))
    if (problem := kind.problem_of(job)) is not None:
        raise ClientError(problem)
    return ValidManifest(kind, where, body, job)


def _name_violations(metadata: Mapping[str, Any], namespace: str) -> Iterator[tuple[str, str]]:
    """The API server repeats the whole name, which it refuses."""
    yield "name", name_violation(str(metadata["name"])) if metadata.get("name") else ""
    # What the server appends begins with a letter or digit.
    prefix = str(metadata.get("generateName") or "").rstrip("-.")
    yield "generateName", name_violation(prefix) if prefix else ""
    yield "namespace", namespace_violation(namespace)


def check_children(requester: Requester, manifest: ValidManifest) -> list[str]:
    """Raises `ClientError` if the controller or Kubernetes would refuse the children of the job.

    The children are compiled as the controller compiles them, and the API server is asked in a dry run whether it
    would create the first of each role, and its pod. What the user may not read or create is not checked. Raises
    `ApiError` if the server does not respond.

    Returns warnings: why the pods are refused for now, or would be if the runtime, which the user may not read, adds
    nothing to the job.
    """
    # These load much that other commands do not need.
    from tfjob_controller.jobs.plan.model import UnplannableError

    job, kind = manifest.job, manifest.kind
    if not is_managed_here(job.spec.managed_by):
        return []
    try:
        plan = kind.preview_of(job, requester)
    except UnplannableError as error:
        raise ClientError(str(error)) from None
    if plan is not None:
        return _check_plan(requester, manifest.namespace, plan)
    try:
        plan = kind.preview_without_runtime_of(job, requester)
        return [] if plan is None else _check_plan(requester, manifest.namespace, plan)
    except (UnplannableError, ClientError) as error:
        return [f"{error} (you may not read the job's runtime, which may provide it)"]


def _check_plan(requester: Requester, namespace: str, plan: Plan) -> list[str]:
    from tfjob_controller.jobs.plan.model import UnplannableError

    try:
        bodies = [(replica, _child(plan, replica)) for replica in _one_of_each_template(plan)]
    except UnplannableError as error:
        raise ClientError(str(error)) from None
    refusals: dict[str, list[str]] = {}
    for replica, body in bodies:
        role = replica.role.name
        # The owner does not exist yet.
        del body["metadata"]["ownerReferences"]
        pod = body if plan.carrier is not None else _pod_of(body)
        _check_images(role, pod["spec"])
        if plan.carrier is None:
            _refuse(role, _refusal(requester, JOBS, namespace, body), _TEMPLATE)
        refused = _refusal(requester, PODS, namespace, pod)
        if plan.carrier is not None:
            _refuse(role, refused, "")
        if refused is not None and (problem := _admission_problem(refused)):
            refusals.setdefault(problem, []).append(role)
    return [f"Kubernetes would refuse the pods of {' and '.join(roles)}: {why}" for why, roles in refusals.items()]


def _child(plan: Plan, replica: Replica) -> dict[str, Any]:
    """The Job of a replica, or its pod if the job has no Jobs."""
    from tfjob_controller.jobs.actions.children import build_job, build_pod

    return build_job(plan, replica) if plan.carrier is None else build_pod(plan, plan.carrier, replica)


def _refuse(role: str, refused: ApiError | None, at: str) -> None:
    """Raises what an error about a child says of its template, whose fields have paths that begin with `at`."""
    if refused is not None and refused.is_retryable:
        raise refused
    if refused is not None and (problem := _template_problem(refused, at)):
        raise ClientError(f"Kubernetes refuses the pods of {role}: {problem}")


def _check_images(role: str, pod: Mapping[str, Any]) -> None:
    for field in ("initContainers", "containers"):
        for container in pod.get(field) or ():
            image = container.get("image") or ""
            if image and (violation := image_violation(image)):
                raise ClientError(f"the image {image!r} of {role} cannot be pulled: it {violation}")


def _refusal(requester: Requester, resource: Resource[Any], namespace: str, body: Mapping[str, Any]) -> ApiError | None:
    """Why the API server would not create this object; None if it would."""
    try:
        path = resource.path(namespace)
        requester.request("POST", path, body=msgspec.json.encode(body), query=STRICT | DRY_RUN)
    except ApiError as error:
        return error
    return None


def _pod_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The pod that the Job controller would create for a Job."""
    template = body["spec"]["template"]
    metadata = {**(template.get("metadata") or {}), "generateName": f"{body['metadata']['name']}-"}
    return {"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": metadata, "spec": template["spec"]}


def _admission_problem(error: ApiError) -> str:
    """What admission refuses, without the name of the pod; empty for a missing right and for other refusals."""
    _, forbidden, problem = error.message.partition(" is forbidden: ")
    return problem if error.is_forbidden and forbidden and " cannot create resource " not in problem else ""


def _one_of_each_template(plan: Plan) -> Iterator[Replica]:
    """The chief comes first."""
    templates: list[Mapping[str, Any]] = []
    for replica in plan.replicas.all:
        if not any(replica.template is template for template in templates):
            templates.append(replica.template)
            yield replica


def _template_problem(error: ApiError, at: str) -> str:
    """The fields that are wrong; empty if the request was refused for another reason, such as a missing right.

    `at` begins the paths of a template's fields.
    """
    fields = [f"{path.removeprefix(at)}: {message}" for path, message in error.causes if path.startswith(at)]
    if fields:
        more = f"; and {len(fields) - _SHOWN} more" if len(fields) > _SHOWN else ""
        return "; ".join(fields[:_SHOWN]) + more
    _, decoding, problems = error.message.partition("strict decoding error: ")
    return problems.replace(at, "") if decoding else ""
