"""The adapter of TrainJobs of Kubeflow Trainer's own API group, and how the program runs them.

Threads: any; workers share one adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, TypeAlias

import msgspec

from tfjob_controller.api.common.record import record_patch
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.kubeflowtrainer.runtime import (
    KUBEFLOW_CLUSTER_TRAINING_RUNTIMES,
    KUBEFLOW_TRAINING_RUNTIMES,
    KubeflowRuntime,
)
from tfjob_controller.api.kubeflowtrainer.types import (
    KUBEFLOW_TRAINJOBS,
    MANAGED_HERE,
    NAMESPACED_RUNTIME,
    KubeflowTrainJob,
)
from tfjob_controller.api.kubeflowtrainer.validation import validate, validate_runtime
from tfjob_controller.controller.kind import METRICS_DEBOUNCE_SECONDS
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.jobs.plan.model import Plan, UnplannableError
from tfjob_controller.jobs.podtemplate.progressreport import ProgressServer
from tfjob_controller.jobs.trainingjob import TrainingJob, TrainingStatus, is_finished
from tfjob_controller.kinds.kindcontroller import Kind, LogReaders, Shared
from tfjob_controller.kinds.kubeflowtrainer.plan import build_kubeflow_plan
from tfjob_controller.kinds.kubeflowtrainer.recipe import KubeflowRecipe
from tfjob_controller.kinds.kubeflowtrainer.status import record_of, recorded_status, upstream_status
from tfjob_controller.kinds.reported import progress_of, reported_metrics
from tfjob_controller.kinds.runtimes import RuntimeCaches, RuntimeKinds, find_runtime, reference_key, seconds_to_wait
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.codec import merge_patch
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.telemetry.jobmetrics import JobSeries
from tfjob_controller.util.clock import Clock


def kubeflow_work(job: KubeflowTrainJob, ttl_seconds: int | None = None) -> TrainingJob:
    """`ttl_seconds` is the time to live after the end, which the job's runtime has."""
    return TrainingJob(job.metadata, recorded_status(job), ttl_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class KubeflowTrainJobAdapter:
    """See `KindAdapter`. The stores have the runtimes of each kind."""

    resource: ClassVar[Resource[Object]] = KUBEFLOW_TRAINJOBS
    status_debounce_seconds: ClassVar[float] = METRICS_DEBOUNCE_SECONDS
    # Upstream's runtimes limit the life of the JobSet, not of the TrainJob.
    is_deleted_when_expired: ClassVar[bool] = False

    namespaced: Store[KubeflowRuntime]
    cluster: Store[KubeflowRuntime]
    config: ControllerConfig
    clock: Clock
    _: KW_ONLY
    restart_rules: bool
    gangs: GangPolicy = NO_GANGS
    progress_server: ProgressServer | None = None

    def is_managed(self, job: KubeflowTrainJob) -> bool:
        return job.spec.managed_by in ("", MANAGED_HERE)

    def work_of(self, job: KubeflowTrainJob) -> TrainingJob:
        runtime = self._find_runtime(job)
        seconds = runtime.spec.template.spec.ttl_seconds_after_finished if runtime is not None else None
        return kubeflow_work(job, seconds)

    def problem(
        self, job: KubeflowTrainJob, before: KubeflowTrainJob | None, *, has_children: bool = False
    ) -> str | None:
        return validate(job)

    def plan(self, job: KubeflowTrainJob) -> Plan:
        parts = self.config, self.gangs, self.restart_rules
        recipe = KubeflowRecipe(job, self._runtime_of(job).spec, *parts, progress_server=self.progress_server)
        roles = recorded_status(job).roles
        count = next((role.replicas for role in roles if role.role == recipe.nodes.name), 0)
        return build_kubeflow_plan(replace(recipe, started_nodes=count))

    def _runtime_of(self, job: KubeflowTrainJob) -> KubeflowRuntime:
        """Returns the runtime of a job that references a kind of runtimes. Raises UnplannableError."""
        ref, runtime = job.spec.runtime_ref, self._find_runtime(job)
        if runtime is None:
            has_run = bool(recorded_status(job).roles)
            seconds_left = seconds_to_wait(job, has_run=has_run, now=self.clock.now())
            raise UnplannableError(
                f"spec.runtimeRef: there is no {ref.kind} {ref.name}: create it before the TrainJob", seconds_left
            )
        problem = validate_runtime(runtime)
        if problem is not None:
            raise UnplannableError(f"{ref.kind} {ref.name}: {problem}")
        return runtime

    def _find_runtime(self, job: KubeflowTrainJob) -> KubeflowRuntime | None:
        return find_runtime(self.namespaced, self.cluster, _runtime_of(job))

    def record_change(self, job: KubeflowTrainJob, status: TrainingStatus) -> Mapping[str, Any] | None:
        return None if status == recorded_status(job) else record_patch(job.metadata, record_of(job, status))

    def status_change(self, job: KubeflowTrainJob, status: TrainingStatus) -> Mapping[str, Any] | None:
        wire = upstream_status(job, status)
        if wire == job.status:
            return None
        # Without a version: the record was written with one, and others write `trainerStatus` all the time.
        changes = merge_patch(msgspec.to_builtins(job.status), msgspec.to_builtins(wire))
        return {"metadata": {"uid": job.metadata.uid}, "status": changes} if changes else None


def _runtime_of(job: KubeflowTrainJob) -> str:
    ref = job.spec.runtime_ref
    return reference_key(job, ref.name, is_namespaced=ref.kind == NAMESPACED_RUNTIME)


KubeflowTrainerCaches: TypeAlias = RuntimeCaches[KubeflowTrainJob, KubeflowRuntime]
RUNTIMES = RuntimeKinds(
    jobs=KUBEFLOW_TRAINJOBS,
    namespaced=KUBEFLOW_TRAINING_RUNTIMES,
    cluster=KUBEFLOW_CLUSTER_TRAINING_RUNTIMES,
    runtime_of=_runtime_of,
    status_of=recorded_status,
)


def _adapter(shared: Shared, caches: KubeflowTrainerCaches, readers: LogReaders) -> KubeflowTrainJobAdapter:
    return KubeflowTrainJobAdapter(
        caches.namespaced.store,
        caches.cluster.store,
        shared.config,
        shared.clock,
        restart_rules=shared.restart_rules,
        gangs=shared.gangs,
        progress_server=shared.progress_server,
    )


def _figures_of(job: KubeflowTrainJob) -> Mapping[str, str]:
    """Returns the last values of a running job's metrics."""
    report = job.status.trainer_status
    if report is None or is_finished(recorded_status(job)):
        return {}
    return {name: metric.value for name, metric in reported_metrics(report).items()} | progress_of(report)


KIND = Kind(
    name="kubeflow-trainjob",
    resource=KUBEFLOW_TRAINJOBS,
    # Jobs of both groups may have the same name.
    label=f"{KUBEFLOW_TRAINJOBS.kind}.{KUBEFLOW_TRAINJOBS.group}",
    queue_page="kubeflow-trainjobs",
    series=JobSeries("trainjob"),
    is_scaled=False,
    takes_reports=True,
    is_enabled=lambda options: options.kubeflow_trainer_api,
    new_caches=lambda requester, namespace, clock, gangs: RuntimeCaches(RUNTIMES, requester, namespace, clock),
    new_adapter=_adapter,
    work_of=kubeflow_work,
    figures_of=_figures_of,
)
