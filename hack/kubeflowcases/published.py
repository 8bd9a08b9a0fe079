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
    return Case(
        f"use-{name}".replace(".", "-"),
        f"manifests/base/runtimes: {name}",
        promise,
        given,
        {},
        steps,
        runtime_name=name,
        runtime_kind=_CLUSTER,
    )


_RUNTIMES = (
    _runtime(
        "torch-distributed",
        "The published runtime for torch starts the job's nodes.",
        trainer(numNodes=2),
        job(NODE, count(2), env({"PET_NNODES": "2"})),
    ),
    _runtime(
        "jax-distributed",
        "The published runtime for JAX starts the job's nodes.",
        trainer(numNodes=2),
        job(NODE, count(2), env({"JAX_NUM_PROCESSES": "2"})),
    ),
    _runtime(
        "xgboost-distributed",
        "The published runtime for XGBoost starts the job's nodes.",
        trainer(numNodes=2),
        job(NODE, count(2), env({"DMLC_NUM_WORKER": "2"})),
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
)  # fmt: skip

_AFTER = replicated(dependsOn=[{"name": DATASET, "status": "Complete"}])
_EXAMPLES = (
    Case(
        "example-nodes",
        "examples/yaml: 01-multi-node",
        "Three nodes run torchrun.",
        {"trainer": {"numNodes": 3, "command": ["torchrun", "--no-python", "python3"]}},
        {},
        (
            job(NODE, count(3), env({"PET_NNODES": "3"}), {f"{CONTAINER}.command[0]": "torchrun"}),
            End(pods=3),
            condition("Complete", "AllJobsCompleted"),
        ),
        runtime_name="torch-distributed",
        runtime_kind=_CLUSTER,
    ),
    Case(
        "example-patches",
        "examples/yaml: 02-runtime-patches",
        "A patch sets service account, node selector, tolerations, labels and annotations.",
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
        (
            job(
                NODE,
                count(2),
                env({"CUSTOM_VAR": "a"}),
                {
                    "metadata.labels.team": "ml-platform",
                    "metadata.annotations[prometheus.io/scrape]": "true",
                    f"{POD}.serviceAccountName": "training-sa",
                    f"{POD}.tolerations[0].key": "training",
                    f"{CONTAINER}.resources": _GIB,
                },
            ),
        ),
        runtime_name="torch-distributed",
        runtime_kind=_CLUSTER,
    ),
    Case(
        "example-kueue",
        "examples/yaml: 03-kueue-integration",
        "A job for Kueue is created suspended and waits.",
        {"suspend": True, **trainer(numNodes=3, resourcesPerNode=_GIB)},
        {},
        (condition("Suspended", "Suspended"), HasNone("Pod")),
        runtime_name="torch-distributed",
        runtime_kind=_CLUSTER,
    ),
    Case(
        "example-volcano",
        "examples/yaml: 04-volcano-integration",
        "A runtime may leave the pods of its jobs to Volcano.",
        trainer(numNodes=4),
        {**runtime(policy={"numNodes": 1, "torch": {}}), "podGroupPolicy": {"volcano": {}}},
        (Fails("spec.podGroupPolicy.volcano: this controller leaves gangs to another scheduler"),),
        differs="As with coscheduling: a controller with --gang-backend=volcano runs it, and another one refuses it.",
    ),
    Case(
        "example-steps",
        "examples/yaml: 05-multi-step",
        "The nodes start when the initializer of the dataset is complete.",
        {**trainer(numNodes=2), "initializer": {"dataset": {"storageUri": "hf://tatsu-lab/alpaca"}}},
        runtime(replicated(DATASET), _AFTER, policy={"numNodes": 1, "torch": {}}),
        (
            job(DATASET, env({"STORAGE_URI": "hf://tatsu-lab/alpaca"}, DATASET)),
            HasNone("Job", NODE),
            End(DATASET),
            job(NODE, count(2)),
            End(pods=2),
            condition("Complete", "AllJobsCompleted"),
        ),
    ),
    Case(
        "example-flux",
        "examples/flux: flux-runtime",
        "A runtime with Flux runs the job under Flux's brokers.",
        trainer(),
        runtime(policy={"numNodes": 1, "flux": {"numProcPerNode": 1}}),
        (condition("Failed", "JobsBuildFailed", message=Contains("mlPolicy.flux")),),
        differs="Flux is refused by name, as the cases below say.",
    ),
)

CASES = (*_RUNTIMES, *_EXAMPLES)
