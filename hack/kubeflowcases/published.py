"""Cases of the runtimes and examples that Kubeflow Trainer publishes."""

from __future__ import annotations

from kubeflowcases.model import Case, Contains, End, Fails, Has, HasNone, Object
from kubeflowcases.objects import (
    CONTAINER,
    DATASET,
    LAUNCHER,
    MODEL,
    NODE,
    POD,
    TORCH,
    case,
    condition,
    count,
    env,
    job,
    patch,
    pod_patch,
    replicated,
    runtime,
    trainer,
)

_CLUSTER = "ClusterTrainingRuntime"
_GIB = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}}
_TUNE: Object = {"trainer": {"command": ["tune", "run"], "resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}}}


def _runtime(name: str, promise: str, given: Object, *steps: Has | HasNone | End) -> Case:
    return (
        case(f"use-{name}".replace(".", "-"), f"manifests/base/runtimes: {name}")
        .promises(promise)
        .given(given, {}, runtime_name=name, runtime_kind=_CLUSTER)
        .then(*steps)
    )


_RUNTIMES = (
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

_AFTER = replicated(dependsOn=[{"name": DATASET, "status": "Complete"}])
_EXAMPLES = (
    case("example-nodes", "examples/yaml: 01-multi-node")
    .promises("Three nodes run torchrun.")
    .given(
        {"trainer": {"numNodes": 3, "command": ["torchrun", "--no-python", "python3"]}},
        {},
        runtime_name="torch-distributed",
        runtime_kind=_CLUSTER,
    )
    .then(
        job(NODE, count(3), env(PET_NNODES="3"), {f"{CONTAINER}.command[0]": "torchrun"}),
        End(pods=3),
        condition("Complete", "AllJobsCompleted"),
    ),
    case("example-patches", "examples/yaml: 02-runtime-patches")
    .promises("A patch sets service account, node selector, tolerations, labels and annotations.")
    .given(
        {
            **trainer(numNodes=2, env=[{"name": "CUSTOM_VAR", "value": "a"}], resourcesPerNode=_GIB),
            "runtimePatches": [
                patch(
                    pod_patch(
                        serviceAccountName="training-sa",
                        nodeSelector={"node-type": "training"},
                        tolerations=[{"key": "training", "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
                    ),
                    manager="example.io/platform-team",
                    labels={"team": "ml-platform"},
                    annotations={"prometheus.io/scrape": "true"},
                )
            ],
        },
        {},
        runtime_name="torch-distributed",
        runtime_kind=_CLUSTER,
    )
    .then_node(
        count(2),
        env(CUSTOM_VAR="a"),
        {
            "metadata.labels.team": "ml-platform",
            "metadata.annotations[prometheus.io/scrape]": "true",
            f"{POD}.serviceAccountName": "training-sa",
            f"{POD}.tolerations[0].key": "training",
            f"{CONTAINER}.resources": _GIB,
        },
    ),
    case("example-kueue", "examples/yaml: 03-kueue-integration")
    .promises("A job for Kueue is created suspended and waits.")
    .given(
        {"suspend": True, **trainer(numNodes=3, resourcesPerNode=_GIB)},
        {},
        runtime_name="torch-distributed",
        runtime_kind=_CLUSTER,
    )
    .then(condition("Suspended", "Suspended"), HasNone("Pod")),
    case("example-volcano", "examples/yaml: 04-volcano-integration")
    .promises("A runtime may leave the pods of its jobs to Volcano.")
    .given(trainer(numNodes=4), {**runtime(policy=TORCH), "podGroupPolicy": {"volcano": {}}}, on_server=True)
    .then(Fails("spec.podGroupPolicy.volcano: this controller leaves gangs to another scheduler"))
    .but("As with coscheduling: a controller with --gang-backend=volcano runs it, and another one refuses it."),
    case("example-steps", "examples/yaml: 05-multi-step")
    .promises("The nodes start when the initializer of the dataset is complete.")
    .given(
        {**trainer(numNodes=2), "initializer": {"dataset": {"storageUri": "hf://tatsu-lab/alpaca"}}},
        runtime(replicated(DATASET), _AFTER, policy=TORCH),
    )
    .then(
        job(DATASET, env(DATASET, STORAGE_URI="hf://tatsu-lab/alpaca")),
        HasNone("Job", NODE),
        End(DATASET),
        job(NODE, count(2)),
        End(pods=2),
        condition("Complete", "AllJobsCompleted"),
    ),
    case("example-flux", "examples/flux: flux-runtime")
    .promises("A runtime with Flux runs the job under Flux's brokers.")
    .given(runtime=runtime(policy={"numNodes": 1, "flux": {"numProcPerNode": 1}}))
    .then(condition("Failed", "JobsBuildFailed", message=Contains("mlPolicy.flux")))
    .but("Flux is refused by name, as the cases below say."),
)

CASES = (*_RUNTIMES, *_EXAMPLES)
