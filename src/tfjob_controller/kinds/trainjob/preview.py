"""The plan of a TrainJob that is about to be created, for its user: see `ClientKind.preview_of`.

Nothing is certain where the user may not read runtimes, as with a role in one namespace, or a framework was added to
the controller alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.trainjob.defaults import framework_of
from tfjob_controller.api.trainjob.runtime import (
    CLUSTER_TRAINING_RUNTIMES,
    TRAINING_RUNTIMES,
    TrainingRuntime,
)
from tfjob_controller.api.trainjob.types import FRAMEWORKS, NAMESPACED_RUNTIME, RuntimeRef, TrainJob
from tfjob_controller.jobs.frameworks.registry import by_command, frameworks
from tfjob_controller.jobs.plan.model import Plan, UnplannableError
from tfjob_controller.kinds.trainjob.plan import build_train_plan
from tfjob_controller.kinds.trainjob.recipe import Recipe
from tfjob_controller.kinds.trainjob.runtimes import RuntimeResolver, implied_framework, runtime_of
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import Resource
from tfjob_controller.kube.requester import Requester, server_now

# Errors name this many of the existing runtimes.
_NAMED = 10
_UID = "preview"


class _UnknownError(Exception):
    """The runtime, and so the plan, cannot be known."""


def preview_plan(job: TrainJob, requester: Requester) -> Plan | None:
    """Returns the plan; None if it cannot be known. Raises `UnplannableError`, and `ApiError` without a response."""
    try:
        namespaced, cluster = _runtimes(job, requester)
    except _UnknownError:
        return None
    return _plan(job, RuntimeResolver(namespaced, cluster), requester)


def preview_plan_without_runtime(job: TrainJob, requester: Requester) -> Plan | None:
    """Returns the plan of a job of a built-in framework that names no runtime, as if its runtime added nothing.

    None for other jobs. Raises `UnplannableError`.
    """
    if job.spec.runtime_ref is not None or _is_added(_framework_by_name(job)):
        return None
    return _plan(job, RuntimeResolver({}, {}), requester)


def _plan(job: TrainJob, runtimes: RuntimeResolver, requester: Requester) -> Plan:
    resolved = runtimes.resolve(job, server_now(requester))
    identified = msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, uid=_UID))
    return build_train_plan(Recipe(identified, resolved.framework, resolved.spec, ControllerConfig()))


def _runtimes(job: TrainJob, requester: Requester) -> tuple[dict[str, TrainingRuntime], dict[str, TrainingRuntime]]:
    """The runtime of the job by its key: of the namespace, or of the cluster."""
    if job.spec.runtime_ref is None:
        _check_framework(requester, job)
        runtime = _read(requester, CLUSTER_TRAINING_RUNTIMES, "", implied_framework(job).runtime)
        return {}, ({} if runtime is None else {runtime.metadata.name: runtime})
    runtime = _referenced(requester, job, job.spec.runtime_ref)
    if _is_added(runtime.spec.framework or _framework_by_name(job)):
        raise _UnknownError
    by_key = {runtime_of(job): runtime}
    return (by_key, {}) if runtime.metadata.namespace else ({}, by_key)


def _read(
    requester: Requester, resource: Resource[TrainingRuntime], namespace: str, name: str
) -> TrainingRuntime | None:
    """Returns None if there is no such runtime."""
    try:
        return ResourceClient(requester, resource).get(namespace, name)
    except ApiError as error:
        if error.is_forbidden or error.is_unknown_kind:
            raise _UnknownError from None
        if error.is_not_found:
            return None
        raise


def _referenced(requester: Requester, job: TrainJob, ref: RuntimeRef) -> TrainingRuntime:
    is_namespaced = ref.kind == NAMESPACED_RUNTIME
    namespace = job.metadata.namespace if is_namespaced else ""
    resource = TRAINING_RUNTIMES if is_namespaced else CLUSTER_TRAINING_RUNTIMES
    runtime = _read(requester, resource, namespace, ref.name)
    if runtime is None:
        place = f"namespace {namespace}" if is_namespaced else "the cluster"
        existing = _named(_existing(requester, resource, namespace), place)
        raise UnplannableError(
            f"spec.runtimeRef: there is no {ref.kind} {ref.name}: create it first, or choose another one{existing}"
        )
    return runtime


def _check_framework(requester: Requester, job: TrainJob) -> None:
    """A framework that was added to the controller is recognized by its runtime, since its package is not here."""
    framework = _framework_by_name(job)
    if not _is_added(framework):
        return
    existing = _existing(requester, CLUSTER_TRAINING_RUNTIMES, "")
    of_namespace = _existing(requester, TRAINING_RUNTIMES, job.metadata.namespace)
    if existing is None or of_namespace is None:
        raise _UnknownError
    of_runtimes = {runtime.spec.framework for runtime in (*existing, *of_namespace) if runtime.spec.framework}
    if framework in of_runtimes:
        raise _UnknownError
    raise UnplannableError(
        f"spec.framework: there is no framework {framework}, and no runtime of it: choose one of "
        f"{', '.join(sorted({*FRAMEWORKS, *of_runtimes}))}; if it was added to the controller, create its runtime first"
        f"{_named(existing, 'the cluster')}"
    )


def _framework_by_name(job: TrainJob) -> str:
    """The framework that the job names; empty if its command implies one, which comes first."""
    return "" if by_command(job.spec.trainer.command) is not None else framework_of(job)


def _is_added(framework: str) -> bool:
    """Whether it is a framework that is not installed here."""
    return bool(framework) and framework not in frameworks()


def _existing(
    requester: Requester, resource: Resource[TrainingRuntime], namespace: str
) -> Sequence[TrainingRuntime] | None:
    """Returns None if the user may not list runtimes, or the cluster does not have their kind."""
    try:
        return ResourceClient(requester, resource).list(namespace)
    except ApiError as error:
        if error.is_forbidden or error.is_not_found:
            return None
        raise


def _named(existing: Sequence[TrainingRuntime] | None, place: str) -> str:
    """The names of the existing runtimes, for the end of a sentence."""
    if existing is None:
        return ""
    names = sorted(runtime.metadata.name for runtime in existing)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f" ({place} has {', '.join(names[:_NAMED]) or 'none'}{more})"
