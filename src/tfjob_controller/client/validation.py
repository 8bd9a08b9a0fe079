"""Validates a manifest before it is sent to the API server.

The API server would refuse most invalid manifests as well. Only the controller notices that a TrainJob's runtime or
framework does not exist, and fails the job: `check_runtime` reports it before the job is created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tfjob_controller.api.common.managedby import is_managed_here
from tfjob_controller.api.trainjob.defaults import framework_of, model_output_of
from tfjob_controller.api.trainjob.runtime import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from tfjob_controller.api.trainjob.types import FRAMEWORKS, NAMESPACED_RUNTIME, RuntimeRef, TrainJob
from tfjob_controller.client.errors import ClientError, is_unknown_kind
from tfjob_controller.client.kinds import AnyJob, kind_of_manifest
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import ObjectMeta, Resource
from tfjob_controller.kube.requester import Requester

# Errors name this many of the existing runtimes.
_NAMED = 10


class _RuntimeSpec(msgspec.Struct, frozen=True):
    framework: str = ""
    workspace: dict[str, Any] | None = None


class _Runtime(msgspec.Struct, frozen=True):
    """The fields that are read of a runtime, of either kind."""

    metadata: ObjectMeta
    spec: _RuntimeSpec = _RuntimeSpec()


@dataclass(frozen=True, slots=True)
class ValidManifest:
    """A job that can be created in `namespace` by sending `body`."""

    kind: ClientKind
    namespace: str
    body: bytes
    job: AnyJob


def validate_manifest(manifest: Mapping[str, Any], namespace: str) -> ValidManifest:
    """Validates a manifest, which is for `namespace` if it names none. Raises `ClientError` if it is invalid."""
    kind = kind_of_manifest(manifest)
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise ClientError("metadata.name: is required: give the job a name")
    where = metadata.get("namespace") or namespace
    try:
        body = msgspec.json.encode({**manifest, "metadata": {**metadata, "namespace": where}})
    except (TypeError, ValueError) as error:
        raise ClientError(f"the manifest has a value that JSON cannot represent: {error}") from None
    try:
        job = kind.decode(body)
    except msgspec.MsgspecError as error:
        raise ClientError(f"the manifest is not a {kind.resource.kind}: {error}") from None
    if (problem := kind.problem_of(job)) is not None:
        raise ClientError(problem)
    return ValidManifest(kind, where, body, job)


def check_runtime(requester: Requester, namespace: str, job: TrainJob) -> None:
    """Raises `ClientError` if the job's runtime or framework does not exist in the cluster.

    It is also raised if the model is to be exported and the runtime has no workspace. The controller fails such jobs.
    Nothing is checked for a user who may not read runtimes. Raises `ApiError` if the server does not respond.
    """
    ref, framework = job.spec.runtime_ref, framework_of(job)
    if not is_managed_here(job.spec.managed_by):
        return
    if ref is not None:
        _check_workspace(job, _referenced(requester, namespace, ref))
    elif framework in FRAMEWORKS and _exports(job):
        from tfjob_controller.jobs.frameworks.registry import frameworks

        # A job without a reference uses the runtime of its framework, if the cluster has it.
        found = _found(requester, CLUSTER_TRAINING_RUNTIMES, "", frameworks()[framework].runtime)
        _check_workspace(job, found)
    elif framework and framework not in FRAMEWORKS:
        _check_framework(requester, namespace, framework, job.spec.trainer.command)


def _found(requester: Requester, resource: Resource, namespace: str, name: str) -> _Runtime | None:
    """An empty runtime if there is none of that name; None if the user may not read it."""
    try:
        return _reader(requester, resource).get(namespace, name)
    except ApiError as error:
        if error.is_forbidden or is_unknown_kind(error):
            return None
        if error.is_not_found:
            return _Runtime(ObjectMeta())
        raise


def _referenced(requester: Requester, namespace: str, ref: RuntimeRef) -> _Runtime | None:
    """Returns None if the user may not read the runtime. Raises `ClientError` if it does not exist."""
    is_namespaced = ref.kind == NAMESPACED_RUNTIME
    resource, where = (TRAINING_RUNTIMES, namespace) if is_namespaced else (CLUSTER_TRAINING_RUNTIMES, "")
    runtime = _found(requester, resource, where, ref.name)
    if runtime is None or runtime.metadata.name:
        return runtime
    place = f"namespace {namespace}" if is_namespaced else "the cluster"
    existing = _in_words(_existing(requester, resource, where), place)
    raise ClientError(
        f"spec.runtimeRef: there is no {ref.kind} {ref.name}: create it first, or choose another one{existing}"
    )


def _check_workspace(job: TrainJob, runtime: _Runtime | None) -> None:
    if runtime is not None and runtime.spec.workspace is None and _exports(job):
        from tfjob_controller.kinds.trainjob.podtemplate import NO_WORKSPACE

        raise ClientError(NO_WORKSPACE)


def _exports(job: TrainJob) -> bool:
    """Whether an exporter uploads the model; a claim is mounted instead."""
    output = model_output_of(job.spec)
    return output is not None and not output.storage_uri.startswith("pvc://")


def _check_framework(requester: Requester, namespace: str, framework: str, command: Sequence[str]) -> None:
    """A framework that was added to the controller is recognized by its runtime, since its package is not here."""
    from tfjob_controller.jobs.frameworks.registry import by_command

    if by_command(command) is not None:
        return
    existing = _existing(requester, CLUSTER_TRAINING_RUNTIMES, "")
    of_namespace = _existing(requester, TRAINING_RUNTIMES, namespace)
    if existing is None or of_namespace is None:
        return
    known = {*FRAMEWORKS, *(each.spec.framework for each in (*existing, *of_namespace) if each.spec.framework)}
    if framework not in known:
        raise ClientError(
            f"spec.framework: there is no framework {framework}, and no runtime of it: choose one of "
            f"{', '.join(sorted(known))}; if it was added to the controller, create its runtime first"
            f"{_in_words(existing, 'the cluster')}"
        )


def _reader(requester: Requester, resource: Resource) -> ResourceClient[_Runtime]:
    return ResourceClient(requester, resource, decoder_for(_Runtime))


def _existing(requester: Requester, resource: Resource, namespace: str) -> Sequence[_Runtime] | None:
    """Returns None if the user may not list runtimes, or the cluster does not have their kind."""
    try:
        return _reader(requester, resource).list(namespace)
    except ApiError as error:
        if error.is_forbidden or error.is_not_found:
            return None
        raise


def _in_words(existing: Sequence[_Runtime] | None, place: str) -> str:
    """The names of the existing runtimes, for the end of a sentence."""
    if existing is None:
        return ""
    names = sorted(each.metadata.name for each in existing)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f" ({place} has {', '.join(names[:_NAMED]) or 'none'}{more})"
