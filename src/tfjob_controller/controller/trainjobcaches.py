"""Informers of TrainJobs and of the runtimes that they use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfjob_controller.api.decode import decode_training_runtime, decode_trainjob
from tfjob_controller.api.trainingruntime import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, TrainingRuntime
from tfjob_controller.api.trainjob import CLUSTER_RUNTIME, NAMESPACED_RUNTIME, TRAINJOBS, TrainJob
from tfjob_controller.controller.causes import ADDED, UNKNOWN, Causes
from tfjob_controller.controller.handlers import BY_RUNTIME, JobHandler
from tfjob_controller.controller.runtimes import Runtimes
from tfjob_controller.controller.trainjob import by_runtime_id
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import key_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.ratelimiting import RateLimitingQueue
from tfjob_controller.util.clock import Clock


class TrainJobCaches:
    """`namespace` "" means all. ClusterTrainingRuntimes have none."""

    def __init__(self, requester: Requester, namespace: str, clock: Clock) -> None:
        common: dict[str, Any] = {"namespace": namespace, "clock": clock}
        self.jobs: Informer[TrainJob] = Informer(
            requester, TRAINJOBS, decode_trainjob, indexers={BY_RUNTIME: by_runtime_id}, **common
        )
        self._namespaced: Informer[TrainingRuntime] = Informer(
            requester, TRAINING_RUNTIMES, decode_training_runtime, **common
        )
        self._cluster: Informer[TrainingRuntime] = Informer(
            requester, CLUSTER_TRAINING_RUNTIMES, decode_training_runtime, clock=clock
        )

    @property
    def all(self) -> Sequence[Informer[Any]]:
        return (self.jobs, self._namespaced, self._cluster)

    @property
    def runtimes(self) -> Runtimes:
        return Runtimes(self._namespaced.store, self._cluster.store)

    def feed(self, queue: RateLimitingQueue[str], causes: Causes = UNKNOWN) -> None:
        """Jobs, and those that wait for a runtime which has come."""
        self.jobs.add_handler(JobHandler(queue, is_new=lambda job: not job.status.phase, causes=causes))
        self._namespaced.add_handler(RuntimeHandler(queue, self.jobs.store, NAMESPACED_RUNTIME, causes))
        self._cluster.add_handler(RuntimeHandler(queue, self.jobs.store, CLUSTER_RUNTIME, causes))


class RuntimeHandler:
    """Queues the jobs that name a new runtime and have not started. What started keeps what it started with."""

    def __init__(
        self, queue: RateLimitingQueue[str], jobs: Store[TrainJob], kind: str, causes: Causes = UNKNOWN
    ) -> None:
        self._queue = queue
        self._causes = causes
        self._jobs = jobs
        self._kind = kind

    def on_add(self, obj: TrainingRuntime, is_initial: bool) -> None:
        if is_initial:
            return
        for job in self._jobs.list():
            if job.status.start_time is None and self._is_named(job, obj):
                self._causes.note(key_of(job), ADDED, obj)
                self._queue.add(key_of(job))

    def _is_named(self, job: TrainJob, runtime: TrainingRuntime) -> bool:
        ref = job.spec.runtime_ref
        if ref is None or ref.kind != self._kind or ref.name != runtime.metadata.name:
            return False
        return runtime.metadata.namespace in ("", job.metadata.namespace)

    def on_update(self, old: TrainingRuntime, new: TrainingRuntime) -> None:
        if old is not new:
            self.on_add(new, is_initial=False)

    def on_delete(self, obj: TrainingRuntime, final: bool) -> None:
        """Nobody loses what has started."""
