"""What each replica of a job uses now, of what it requests, and whether the job leaves its GPUs unused.

Pods and their metrics are read with the credentials of the user. GPUs are asked for exactly the pods that the user has
read, because the Prometheus knows those of everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from tfjob_controller.api.common.cluster import FINISHED_PHASES, ScheduledPod
from tfjob_controller.api.common.core import PODS
from tfjob_controller.api.common.quantity import CPU, MEMORY
from tfjob_controller.api.common.scheduledpods import GANG_LABELS, scheduled_pod_decoder
from tfjob_controller.api.gang import index_of, kind_of
from tfjob_controller.client.kinds import Snapshot
from tfjob_controller.client.liveuse.gpus import IDLE_MINUTES, GpuUse, gpu_use
from tfjob_controller.client.liveuse.podmetrics import pod_usage
from tfjob_controller.client.liveuse.prometheus import PrometheusError, Queries
from tfjob_controller.jobs.naming import (
    JOB_TYPE,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
    TASK_INDEX,
    replica_id_of,
)
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.meta import controller_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.timestamps import parse_time_or_none

_GPU_DOMAIN = "nvidia.com/"
_LABELS = (*GANG_LABELS, JOB_TYPE, TASK_INDEX, REPLICA_TYPE_LABEL, REPLICA_INDEX_LABEL)
_PODS = PODS.with_decoder(scheduled_pod_decoder(_LABELS))
_PATIENCE: dict[str, Any] = {"timeout_seconds": 10.0, "retry": False}


@dataclass(frozen=True, slots=True)
class ReplicaUse:
    """One pod with a node. Amounts are thousandths of a CPU, bytes, and pieces.

    What is requested is 0 without a request; what is used is None if it is not known.
    """

    replica: str
    pod: str
    created: str
    cpu_requested: int
    memory_requested: int
    gpus_requested: int
    cpu_used: int | None = None
    memory_used: int | None = None
    gpu: GpuUse | None = None


@dataclass(frozen=True, slots=True)
class JobUse:
    """`gpu_problem` is why the use of GPUs is not known, for people; empty if it is, or without a Prometheus.

    `unused_gpus` is how many GPUs the job has held for half an hour without any use of one of them.
    """

    replicas: Sequence[ReplicaUse] = ()
    gpu_problem: str = ""
    unused_gpus: int = 0


def read_job_use(requester: Requester, snapshot: Snapshot, now: datetime, prometheus: Queries | None = None) -> JobUse:
    """Reads the use of a job. Raises `ApiError` if the pods cannot be read."""
    selector = snapshot.kind.child_selector(snapshot.job)
    if not selector:
        return JobUse()
    namespace = snapshot.metadata.namespace
    pods = ResourceClient(requester, _PODS, **_PATIENCE).list(namespace, selector)
    replicas = [
        _replica(pod)
        for pod in pods
        if pod.spec.node_name and pod.status.phase not in FINISHED_PHASES and _is_of(pod, snapshot)
    ]
    replicas.sort(key=lambda replica: (kind_of(replica.replica), index_of(replica.replica) or 0, replica.pod))
    if not replicas:
        return JobUse()
    usage = pod_usage(requester, namespace, selector)
    for number, replica in enumerate(replicas):
        cpu, memory = usage.get((namespace, replica.pod), (None, None))
        replicas[number] = replace(replica, cpu_used=cpu, memory_used=memory)
    with_gpus = [replica.pod for replica in replicas if replica.gpus_requested]
    if prometheus is None or not with_gpus:
        return JobUse(replicas)
    try:
        by_pod = gpu_use(prometheus, namespace, with_gpus)
    except PrometheusError as error:
        return JobUse(replicas, gpu_problem=str(error))
    replicas = [replace(replica, gpu=by_pod.get(replica.pod)) for replica in replicas]
    # Other kinds have child Jobs, which give each pod a new name.
    oldest = now - timedelta(minutes=IDLE_MINUTES) if snapshot.kind.owns_pods else None
    return JobUse(replicas, unused_gpus=unused_gpus(replicas, oldest))


def unused_gpus(replicas: Sequence[ReplicaUse], oldest: datetime | None = None) -> int:
    """The number of GPUs that all were unused in the last half hour; 0 if one was used, or is not known for that time.

    A pod that is younger than `oldest` has the name of an earlier one, which the figures may be about.
    """
    with_gpus = [replica for replica in replicas if replica.gpus_requested]
    for replica in with_gpus:
        if replica.gpu is None or replica.gpu.peak is None or replica.gpu.peak > 0:
            return 0
        if oldest is not None and not is_before(replica.created, oldest):
            return 0
    return sum(replica.gpus_requested for replica in with_gpus)


def is_before(moment: str, limit: datetime) -> bool:
    """Whether a time of the API server is known and not after another one."""
    parsed = parse_time_or_none(moment)
    return parsed is not None and parsed <= limit


def _is_of(pod: ScheduledPod, snapshot: Snapshot) -> bool:
    """Whether the pod is the job's: others may have given theirs the same labels, and so may an earlier job."""
    if snapshot.kind.owns_pods:
        owner = controller_of(pod)
        return owner is not None and owner.uid == snapshot.metadata.uid
    return (pod.metadata.creation_timestamp or "") >= (snapshot.metadata.creation_timestamp or "")


def _replica(pod: ScheduledPod) -> ReplicaUse:
    meta, requests = pod.metadata, pod.requests or {}
    return ReplicaUse(
        replica=replica_id_of(meta.labels) or meta.name,
        pod=meta.name,
        created=meta.creation_timestamp or "",
        cpu_requested=requests.get(CPU, 0),
        memory_requested=requests.get(MEMORY, 0),
        gpus_requested=sum(amount for name, amount in requests.items() if name.startswith(_GPU_DOMAIN)),
    )
