"""Cases of the runtimes that Kubeflow Trainer publishes."""

from __future__ import annotations

from kubeflowcases.model import Case, Contains, Has, HasNone, Object
from kubeflowcases.objects import (
    CONTAINER,
    DATASET,
    LAUNCHER,
    MODEL,
    NODE,
    POD,
    case,
    count,
    env,
    job,
    trainer,
)

_CLUSTER = "ClusterTrainingRuntime"
_TUNE: Object = {"trainer": {"command": ["tune", "run"], "resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}}}


def _runtime(name: str, promise: str, given: Object, *steps: Has | HasNone) -> Case:
    return (
        case(f"use-{name}".replace(".", "-"), f"manifests/base/runtimes: {name}")
        .promises(promise)
        .given(given, {}, runtime_name=name, runtime_kind=_CLUSTER)
        .then(*steps)
    )


CASES = (
    _runtime(
        "torch-distributed",
        "The published runtime for torch starts the job's nodes.",
        trainer(numNodes=2),
        job(NODE, count(2), env(PET_NNODES="2")),
    ),
    _runtime(
        "jax-distributed",
        "The published runtime for JAX starts the job's nodes.",
        trainer(numNodes=2),
        job(NODE, count(2), env(JAX_NUM_PROCESSES="2")),
    ),
    _runtime(
        "xgboost-distributed",
        "The published runtime for XGBoost starts the job's nodes.",
        trainer(numNodes=2),
        job(NODE, count(2), env(DMLC_NUM_WORKER="2")),
    ),
    *(
        _runtime(
            f"{name}-distributed",
            f"The published runtime for {label} starts sshd on the nodes and the job's command on the launcher.",
            trainer(numNodes=2, command=["mpirun", "train"]),
            job(NODE, count(1), {f"{CONTAINER}.command": ["/usr/sbin/sshd"]}),
            job(LAUNCHER, count(1), {f"{CONTAINER}.command": ["mpirun", "train"]}),
        )
        for name, label in (("deepspeed", "DeepSpeed"), ("mlx", "MLX"))
    ),
    *(
        _runtime(
            name,
            f"The published runtime {name} creates its volume and fetches dataset and model before it trains.",
            _TUNE,
            job(DATASET, {f"{POD}.volumes[initializer].persistentVolumeClaim.claimName": Contains("initializer-use-")}),
            job(MODEL, {f"{POD}.containers[{MODEL}].volumeMounts[initializer].mountPath": "/workspace"}),
            HasNone("Job", NODE),
        )
        for name in ("torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "torchtune-qwen2.5-1.5b")
    ),
    _runtime(
        "torch-distributed-with-cache",
        "The published runtime with a data cache finds the name of its job in a label of its pods.",
        trainer(),
        Has("Pod", f"-{DATASET}-0-0", {"metadata.labels[jobset.sigs.k8s.io/jobset-name]": Contains("with-cache")}),
        HasNone("Job", NODE),
    ),
)
