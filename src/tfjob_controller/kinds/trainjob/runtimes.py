"""Resolves the runtime and the framework of a TrainJob.

    runtimeRef, or else the built-in one of the framework that the command implies, or that the job names, or `plain`

A built-in runtime may be missing in the cluster, since it only supplies what jobs can specify themselves. A runtime
that a job references must exist. It may be created a moment after the job, as when a folder of manifests is applied,
so the job waits for it before it fails.

Threads: any.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.api.trainjob.defaults import framework_of
from tfjob_controller.api.trainjob.runtime import RuntimeSpec, TrainingRuntime
from tfjob_controller.api.trainjob.types import NAMESPACED_RUNTIME, RuntimeRef, TrainJob
from tfjob_controller.api.trainjob.validation import elastic_problem, validate_runtime, validate_with_runtime
from tfjob_controller.jobs.frameworks.base import Framework
from tfjob_controller.jobs.frameworks.environment import PLAIN as PLAIN
from tfjob_controller.jobs.frameworks.registry import by_command, frameworks
from tfjob_controller.jobs.plan.model import UnplannableError
from tfjob_controller.kinds.runtimes import Lookup, find_runtime, reference_key, seconds_to_wait

# Neither a failed job nor its runtimeRef can be changed.
_RESUBMIT = "then delete the job and submit it again"


@dataclass(frozen=True, slots=True)
class ResolvedRuntime:
    """`spec` is None if there is no runtime."""

    framework: Framework
    spec: RuntimeSpec | None


def runtime_of(job: TrainJob) -> str:
    """Returns the key of the runtime to which the job refers; empty if to none."""
    ref = job.spec.runtime_ref
    return reference_key(job, ref.name, is_namespaced=ref.kind == NAMESPACED_RUNTIME) if ref is not None else ""


class RuntimeResolver:
    """Resolves runtimes, which are looked up by their keys."""

    def __init__(self, namespaced: Lookup[TrainingRuntime], cluster: Lookup[TrainingRuntime]) -> None:
        self._namespaced = namespaced
        self._cluster = cluster

    def resolve(self, job: TrainJob, now: datetime) -> ResolvedRuntime:
        """Raises UnplannableError if the runtime does not exist (yet) or does not fit the job."""
        ref = job.spec.runtime_ref
        resolved = self._referenced(job, ref, now) if ref is not None else self._built_in(implied_framework(job))
        problem = validate_with_runtime(job.spec, resolved.spec) or elastic_problem(job.spec, resolved.framework.name)
        if problem is not None:
            raise UnplannableError(problem)
        return resolved

    def name_for(self, job: TrainJob) -> str:
        """The name of the job's runtime for its status, whether or not the runtime exists; empty if unknown."""
        ref = job.spec.runtime_ref
        if ref is not None:
            return ref.name
        try:
            return implied_framework(job).runtime
        except UnplannableError:
            return ""

    def _referenced(self, job: TrainJob, ref: RuntimeRef, now: datetime) -> ResolvedRuntime:
        runtime = find_runtime(self._namespaced, self._cluster, runtime_of(job))
        if runtime is None:
            seconds_left = seconds_to_wait(job, has_run=bool(job.status.jobs_status), now=now)
            remedy = "create it" if seconds_left else f"create it or choose another one, {_RESUBMIT}"
            raise UnplannableError(f"spec.runtimeRef: there is no {ref.kind} {ref.name}: {remedy}", seconds_left)
        problem = validate_runtime(runtime)
        if problem is not None:
            raise UnplannableError(f"{ref.kind} {ref.name}: {problem}")
        return ResolvedRuntime(_agreed_framework(job, ref, runtime.spec), runtime.spec)

    def _built_in(self, framework: Framework) -> ResolvedRuntime:
        runtime = self._cluster.get(framework.runtime)
        if runtime is None or validate_runtime(runtime) is not None:
            return ResolvedRuntime(framework, None)
        return ResolvedRuntime(framework, runtime.spec)


def _agreed_framework(job: TrainJob, ref: RuntimeRef, runtime: RuntimeSpec) -> Framework:
    """The framework that the job and its runtime agree on."""
    of_job = framework_of(job)
    if of_job and runtime.framework and of_job != runtime.framework:
        raise UnplannableError(
            f"spec.framework: is {of_job}, but {ref.kind} {ref.name} is for {runtime.framework}: leave it out"
        )
    return _named(runtime.framework) if runtime.framework else implied_framework(job)


def implied_framework(job: TrainJob) -> Framework:
    by_its_command = by_command(job.spec.trainer.command)
    name = framework_of(job)
    return by_its_command or (_named(name) if name else PLAIN)


def _named(name: str) -> Framework:
    framework = frameworks().get(name)
    if framework is None:
        known = ", ".join(sorted(frameworks()))
        raise UnplannableError(
            f"spec.framework: there is no framework {name!r}: it must be one of {known}: correct it, {_RESUBMIT}"
        )
    return framework
