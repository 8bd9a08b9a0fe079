"""The informers of Kubeflow Trainer's TrainJobs and their runtimes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tfjob_controller.api.kubeflowtrainer.runtime import (
    KUBEFLOW_CLUSTER_TRAINING_RUNTIMES,
    KUBEFLOW_TRAINING_RUNTIMES,
    KubeflowRuntime,
    decode_kubeflow_runtime,
)
from tfjob_controller.api.kubeflowtrainer.types import (
    KUBEFLOW_TRAINJOBS,
    NAMESPACED_RUNTIME,
    KubeflowTrainJob,
    decode_kubeflow_trainjob,
)
from tfjob_controller.controller.handlers import (
    BY_RUNTIME,
    NO_TRIGGER_LOG,
    JobHandler,
    RuntimeHandler,
    TriggerLog,
    runtime_key,
)
from tfjob_controller.kinds.kubeflowtrainer.status import recorded_status
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
from tfjob_controller.trainer.naming import runtime_id_of
from tfjob_controller.util.clock import Clock


def by_runtime_id(job: KubeflowTrainJob) -> Iterable[str]:
    """Index function."""
    return (runtime_key(job.metadata.namespace, runtime_id_of(job.metadata.uid)),)


class KubeflowTrainerCaches:
    """Informers of TrainJobs and their runtimes. `namespace` "" means all namespaces."""

    def __init__(self, requester: Requester, namespace: str, clock: Clock) -> None:
        common: dict[str, Any] = {"namespace": namespace, "clock": clock}
        self.jobs: Informer[KubeflowTrainJob] = Informer(
            requester, KUBEFLOW_TRAINJOBS, decode_kubeflow_trainjob, indexers={BY_RUNTIME: by_runtime_id}, **common
        )
        self.namespaced: Informer[KubeflowRuntime] = Informer(
            requester, KUBEFLOW_TRAINING_RUNTIMES, decode_kubeflow_runtime, **common
        )
        self.cluster: Informer[KubeflowRuntime] = Informer(
            requester, KUBEFLOW_CLUSTER_TRAINING_RUNTIMES, decode_kubeflow_runtime, clock=clock
        )

    @property
    def all(self) -> Sequence[Informer[Any]]:
        return (self.jobs, self.namespaced, self.cluster)

    def feed(self, queue: RateLimitingQueue[str], triggers: TriggerLog = NO_TRIGGER_LOG) -> None:
        """Queues jobs, also when a runtime that they wait for appears."""
        self.jobs.add_handler(JobHandler(queue, is_new=lambda job: not recorded_status(job).phase, triggers=triggers))
        for informer in (self.namespaced, self.cluster):
            informer.add_handler(RuntimeHandler(queue, self.jobs.store, waits_for, triggers))


def waits_for(job: KubeflowTrainJob, runtime: KubeflowRuntime) -> bool:
    """Reports whether the job refers to this runtime and has not started."""
    ref, namespace = job.spec.runtime_ref, runtime.metadata.namespace
    wanted = job.metadata.namespace if ref.kind == NAMESPACED_RUNTIME else ""
    is_named = ref.name == runtime.metadata.name and namespace == wanted
    return is_named and recorded_status(job).start_time is None
