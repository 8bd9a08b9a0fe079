"""The informers of TrainJobs and their runtimes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from tfjob_controller.api.trainjob.runtime import (
    CLUSTER_TRAINING_RUNTIMES,
    TRAINING_RUNTIMES,
    TrainingRuntime,
    decode_training_runtime,
)
from tfjob_controller.api.trainjob.types import (
    CLUSTER_RUNTIME,
    NAMESPACED_RUNTIME,
    TRAINJOBS,
    TrainJob,
    decode_trainjob,
)
from tfjob_controller.controller.handlers import (
    BY_RUNTIME,
    NO_TRIGGER_LOG,
    JobHandler,
    RuntimeHandler,
    TriggerLog,
    runtime_key,
)
from tfjob_controller.kinds.trainjob.runtimes import RuntimeResolver
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
from tfjob_controller.trainer.naming import runtime_id_of
from tfjob_controller.util.clock import Clock


def trainjob_by_runtime_id(job: TrainJob) -> Iterable[str]:
    """Index function."""
    return (runtime_key(job.metadata.namespace, runtime_id_of(job.metadata.uid)),)


class TrainJobCaches:
    """Informers of TrainJobs and their runtimes. `namespace` "" means all namespaces."""

    def __init__(self, requester: Requester, namespace: str, clock: Clock) -> None:
        common: dict[str, Any] = {"namespace": namespace, "clock": clock}
        self.jobs: Informer[TrainJob] = Informer(
            requester, TRAINJOBS, decode_trainjob, indexers={BY_RUNTIME: trainjob_by_runtime_id}, **common
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
    def runtimes(self) -> RuntimeResolver:
        return RuntimeResolver(self._namespaced.store, self._cluster.store)

    def feed(self, queue: RateLimitingQueue[str], triggers: TriggerLog = NO_TRIGGER_LOG) -> None:
        """Queues jobs, also when a runtime that they wait for appears."""
        self.jobs.add_handler(JobHandler(queue, is_new=lambda job: not job.status.phase, triggers=triggers))
        for kind, informer in ((NAMESPACED_RUNTIME, self._namespaced), (CLUSTER_RUNTIME, self._cluster)):
            informer.add_handler(RuntimeHandler(queue, self.jobs.store, partial(waits_for, kind), triggers))


def waits_for(kind: str, job: TrainJob, runtime: TrainingRuntime) -> bool:
    """Reports whether the job refers to this runtime of that kind and has not started."""
    ref = job.spec.runtime_ref
    if job.status.start_time is not None or ref is None or ref.kind != kind or ref.name != runtime.metadata.name:
        return False
    return runtime.metadata.namespace in ("", job.metadata.namespace)
