"""What the replicas of a `kubeflow.org/v1` job get so that they find each other: variables and init containers.

Names and values are those of training-operator 1.9: pods that it has created and pods that this controller adds to the
same job form one cluster. TF_CONFIG has the same text.

Replicas address each other by their Services. TF_CONFIG has `NAME.NAMESPACE.svc`, the other variables the name alone. A
name resolves only while its pod is ready, so the workers of a PyTorchJob wait for the master in an init container.

Jobs come with their defaults and without errors (`api.kubeflowv1`). The launcher of an MPIJob starts the processes of
all workers itself, by what `mpi` adds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tfjob_controller.api.kubeflowv1.types import (
    JAX_JOB,
    MASTER,
    MPI_JOB,
    PADDLE_JOB,
    PS,
    PYTORCH_JOB,
    TF_JOB,
    V1_KINDS,
    WORKER,
    XGBOOST_JOB,
    V1ElasticPolicy,
    V1Job,
)
from tfjob_controller.api.masterwait import MasterWait
from tfjob_controller.jobs.frameworks.environment import TF_CONFIG, tf_config_environment
from tfjob_controller.jobs.podtemplate.merge import container_of, spec_of
from tfjob_controller.kinds.kubeflowv1 import mpi

# An entry of a container's `env`.
EnvVar = Mapping[str, Any]
# The value of a variable: a text, or the `valueFrom` of its entry.
_Value = str | Mapping[str, Any]
# The variables of one replica, by its type (in canonical case) and its index.
_ByReplica = Callable[[str, int], Mapping[str, _Value]]

# Python programs write their output at once.
_UNBUFFERED = MappingProxyType({"PYTHONUNBUFFERED": "1"})

# The variable with the pod's own address, to which PADDLE_MASTER refers.
_POD_IP = "POD_IP_DUMMY"

# A number as strconv.Atoi of Go reads it; longer ones are not in its range.
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class PodEnvironment:
    """The variables that a pod gets after those of its template, in an order in which they can refer to each other.

    Only `container` gets them, or all containers if it is empty. Init containers get none.
    """

    variables: tuple[EnvVar, ...]
    container: str = ""


def pod_name(job_name: str, replica_type: str, index: int) -> str:
    """The name of a replica's pod and of its Service."""
    return f"{job_name}-{replica_type.lower()}-{index}".replace("/", "-")


def container_name(job: V1Job, replica_type: str) -> str:
    """The name of the training container of the replicas of one type."""
    if job.kind == MPI_JOB:
        return mpi.training_container(job.spec.replica_specs[replica_type].template)
    return V1_KINDS[job.kind].container


def variables_of(job: V1Job, cluster_domain: str) -> Callable[[str, int], PodEnvironment]:
    """Returns the variables of each replica by its type and index.

    `cluster_domain` is the end of host names in TF_CONFIG; by default they end with `.svc`. What the replicas of a job
    share is computed once.
    """
    by_replica = _tensorflow(job, cluster_domain) if job.kind == TF_JOB else _FRAMEWORKS[job.kind](job)

    def environment(replica_type: str, index: int) -> PodEnvironment:
        values = by_replica(replica_type, index)
        container = container_name(job, replica_type) if job.kind in (TF_JOB, MPI_JOB) else ""
        return PodEnvironment(tuple(_entry(name, value) for name, value in values.items()), container)

    return environment


def init_containers_of(job: V1Job, replica_type: str, wait: MasterWait) -> Sequence[Mapping[str, Any]]:
    """Returns the init containers that a replica gets after those of its template."""
    if job.kind != PYTORCH_JOB or replica_type != WORKER or MASTER not in job.spec.replica_specs:
        return ()
    return wait.containers(_address(job, MASTER))


def _entry(name: str, value: _Value) -> EnvVar:
    return {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": value}


def _replicas(job: V1Job, replica_type: str) -> int:
    entry = job.spec.replica_specs.get(replica_type)
    return 0 if entry is None else entry.replicas or 0


def _all_replicas(job: V1Job) -> int:
    return sum(_replicas(job, replica_type) for replica_type in job.spec.replica_specs)


def _address(job: V1Job, replica_type: str, index: int = 0) -> str:
    return pod_name(job.metadata.name, replica_type, index)


def _port(job: V1Job, replica_type: str) -> int:
    """The port by which the replicas of a type are reached. It has the kind's name; the defaults include it."""
    kind = V1_KINDS[job.kind]
    container = container_of(spec_of(job.spec.replica_specs[replica_type].template), kind.container) or {}
    ports = container.get("ports") or ()
    # The API server refuses pods whose port is not a number.
    number: int = next(port.get("containerPort", 0) for port in ports if port.get("name") == kind.port_name)
    return number


# TensorFlow


def _tensorflow(job: V1Job, cluster_domain: str) -> _ByReplica:
    """TF_CONFIG of all replicas; a job with a single one trains locally.

    Replicas of types that training-operator does not know do not count for this, but they belong to the cluster.
    """
    if sum(_replicas(job, replica_type) for replica_type in V1_KINDS[job.kind].types) == 1:
        return lambda replica_type, index: {}
    domain = f"{job.metadata.namespace}.svc" + (f".{cluster_domain}" if cluster_domain else "")
    cluster = {name.lower(): _tf_addresses(job, name, domain) for name in job.spec.replica_specs}
    if job.spec.enable_dynamic_worker:
        return lambda replica_type, index: _sparse_tf_config(cluster, replica_type.lower(), index)
    by_role = tf_config_environment(cluster)
    return lambda replica_type, index: by_role(replica_type.lower(), str(index))


def _tf_addresses(job: V1Job, replica_type: str, domain: str) -> list[str]:
    port = _port(job, replica_type)
    return [f"{_address(job, replica_type, index)}.{domain}:{port}" for index in range(_replicas(job, replica_type))]


def _sparse_tf_config(cluster: Mapping[str, Sequence[str]], role: str, index: int) -> Mapping[str, str]:
    """TF_CONFIG of a job whose number of workers changes: a worker knows itself and the parameter servers.

    A parameter server knows only itself, and other replicas know nobody. The addresses of the parameter servers are
    null in a job without this type.
    """
    workers: Mapping[str, str] = {}
    servers: Sequence[str] | None = []
    if role == PS.lower():
        servers = [cluster[role][index]]
    elif role == WORKER.lower():
        workers = {str(index): cluster[role][index]}
        servers = cluster.get(PS.lower())
    config = {"cluster": {"worker": workers, "ps": servers}, "task": {"type": role, "index": index}}
    return {TF_CONFIG: json.dumps(config, separators=(",", ":"))}


# PyTorch


def _pytorch(job: V1Job) -> _ByReplica:
    """The variables of torch.distributed, and those from which torchrun reads its options (`PET_<OPTION>`).

    Without a master there is no static rendezvous, so no replica has a rank.
    """
    spec = job.spec
    has_master = MASTER in spec.replica_specs
    shared = {**_UNBUFFERED, **(_static_rendezvous(job) if has_master else {})}
    if spec.nproc_per_node is not None:
        shared["PET_NPROC_PER_NODE"] = spec.nproc_per_node
    if spec.elastic_policy is None:
        shared["PET_NNODES"] = str(_all_replicas(job))
    else:
        shared |= _elastic_rendezvous(job, spec.elastic_policy)

    def variables(replica_type: str, index: int) -> Mapping[str, _Value]:
        if not has_master:
            return shared
        rank = str(index + 1 if replica_type == WORKER else index)
        return {**shared, "RANK": rank, "PET_NODE_RANK": rank}

    return variables


def _static_rendezvous(job: V1Job) -> Mapping[str, str]:
    host, port = _address(job, MASTER), str(_port(job, MASTER))
    processes = job.spec.nproc_per_node or ""
    # With `auto`, `cpu` and `gpu` torchrun counts the processes itself, and sets WORLD_SIZE for them.
    per_node = int(processes) if _NUMBER.fullmatch(processes) else 1
    return {
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": host,
        "PET_MASTER_ADDR": host,
        "WORLD_SIZE": str(_all_replicas(job) * per_node),
    }


def _elastic_rendezvous(job: V1Job, policy: V1ElasticPolicy) -> Mapping[str, str]:
    host = _address(job, WORKER) if policy.rdzv_host is None else policy.rdzv_host
    port = _port(job, WORKER) if policy.rdzv_port is None else policy.rdzv_port
    given = {
        "PET_MAX_RESTARTS": policy.max_restarts,
        "PET_NPROC_PER_NODE": policy.n_proc_per_node,
        "PET_RDZV_ID": policy.rdzv_id,
        "PET_RDZV_CONF": ",".join(f"{setting.key}={setting.value}" for setting in policy.rdzv_conf) or None,
        # torchrun reads a number here, so it fails with the value that training-operator sets.
        "PET_STANDALONE": "" if policy.standalone else None,
    }
    return {
        "PET_RDZV_ENDPOINT": f"{host}:{port}",
        "PET_RDZV_BACKEND": "c10d" if policy.rdzv_backend is None else policy.rdzv_backend,
        "PET_NNODES": f"{policy.min_replicas}:{policy.max_replicas}",
        **{name: str(value) for name, value in given.items() if value is not None},
    }


# XGBoost, JAX and PaddlePaddle


def _xgboost(job: V1Job) -> _ByReplica:
    """The tracker of XGBoost, which the master runs, and the workers, which LightGBM needs."""
    masters, workers = _replicas(job, MASTER), _replicas(job, WORKER)
    shared = {
        **_UNBUFFERED,
        "MASTER_PORT": str(_port(job, MASTER)),
        "MASTER_ADDR": _address(job, MASTER),
        "WORLD_SIZE": str(masters + workers),
    }
    if workers:
        shared["WORKER_PORT"] = str(_port(job, WORKER))
        shared["WORKER_ADDRS"] = ",".join(_address(job, WORKER, index) for index in range(workers))
    return lambda replica_type, index: {**shared, "RANK": str(index + masters if replica_type == WORKER else index)}


def _jax(job: V1Job) -> _ByReplica:
    """The arguments of `jax.distributed.initialize()`; worker 0 is the coordinator."""
    shared = {
        **_UNBUFFERED,
        "COORDINATOR_PORT": str(_port(job, WORKER)),
        "COORDINATOR_ADDRESS": _address(job, WORKER),
        "NUM_PROCESSES": str(_all_replicas(job)),
    }
    return lambda replica_type, index: {**shared, "PROCESS_ID": str(index)}


def _paddle(job: V1Job) -> _ByReplica:
    """The options of `paddle.distributed.launch`: parameter servers in a job with a master, else collective training.

    The first replica hosts the rendezvous and listens on the address of its pod; its own name may not resolve yet.
    """
    has_master = MASTER in job.spec.replica_specs
    first = MASTER if has_master else WORKER
    host, port = _address(job, first), _port(job, first)
    shared = {**_UNBUFFERED, "PADDLE_JOB_ID": job.metadata.name, "PADDLE_NNODES": str(_all_replicas(job))}

    def variables(replica_type: str, index: int) -> Mapping[str, _Value]:
        values: dict[str, _Value] = {**shared}
        if (replica_type, index) == (first, 0):
            values[_POD_IP] = {"fieldRef": {"fieldPath": "status.podIP"}}
            values["PADDLE_MASTER"] = f"$({_POD_IP}):{port}"
        else:
            values["PADDLE_MASTER"] = f"{host}:{port}"
        if has_master:
            values["PADDLE_SERVER_NUM" if replica_type == MASTER else "PADDLE_TRAINER_NUM"] = "1"
        return values

    return variables


def _mpi(job: V1Job) -> _ByReplica:
    return lambda replica_type, index: mpi.variables(job, replica_type)


_FRAMEWORKS: Mapping[str, Callable[[V1Job], _ByReplica]] = MappingProxyType(
    {PYTORCH_JOB: _pytorch, MPI_JOB: _mpi, XGBOOST_JOB: _xgboost, JAX_JOB: _jax, PADDLE_JOB: _paddle}
)
