"""Valid TrainJobs and runtimes, which the API server and the controller must accept."""

from __future__ import annotations

from typing import Any

from helpers.goodmanifests import Good
from helpers.trainmanifests import Manifest, override, role_template, runtime, trainjob
from tfjob_controller.api.common.managedby import MANAGED_HERE
from tfjob_controller.api.trainjob.types import ROLES


def _seed_job() -> Manifest:
    """Returns the first job of upstream's user guide unchanged."""
    command = ["torchrun", "--nnodes=2", "--nproc_per_node=4", "train.py", "--epochs=50", "--batch-size=256"]
    resources = {
        "requests": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"},
        "limits": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"},
    }
    trainer = {"image": "my-registry/pytorch-trainer:latest", "resourcesPerNode": resources}
    dataset = {"storageUri": "s3://ml-datasets/imagenet"}
    return trainjob("pytorch-train-resnet", 2, command, trainer=trainer, datasetConfig=dataset)


def _from(secret: str) -> dict[str, Any]:
    return {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}}}


_EVERYTHING = trainjob(
    trainer={
        "numNodes": 2,
        "args": ["--epochs=3"],
        "env": [{"name": "A", "value": ""}, _from("keys"), {"name": "PET_LOG_DIR", "value": "/tmp"}],
        "resourcesPerNode": {"requests": {"cpu": 1, "memory": "1.5e9"}, "limits": {"cpu": "1500m"}},
        "numProcPerNode": "auto",
    },
    modelConfig={
        "input": {"config": "hf://gpt2@main", "storageUri": "hf://gpt2@main", "env": [_from("hub")]},
        "output": {"storageUri": "file:///models/out", "secretRef": {"name": "keys.of-s3"}, "env": [{"name": "RANK"}]},
    },
    datasetConfig={"storageUri": "http://host:8080/a b?c=d@e", "secretRef": {"name": "0"}, "env": [{"name": "B"}]},
    runtimeRef={"name": "torch-distributed", "kind": "ClusterTrainingRuntime", "apiGroup": "kubeflow.org"},
    framework="my-framework-2",
    podSpecOverrides=[
        override(
            *ROLES,
            serviceAccountName="trainer",
            nodeSelector={"disk": "fast"},
            tolerations=[{"key": "gpu", "operator": "Exists", "tolerationSeconds": 3}],
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
            volumes=[{"name": "cache", "emptyDir": {}}],
            imagePullSecrets=[{"name": "registry"}],
            priorityClassName="high",
            schedulerName="gang",
            containers=[{"name": "node", "env": [{"name": "A"}], "volumeMounts": [{"name": "c", "mountPath": "/c"}]}],
            initContainers=[{"name": "wait"}],
        )
    ],
    labels={"team": "", "a/b": "c.d_e-F"},
    annotations={"note": "any text: ä"},
    checkpoint={
        "storageUri": "s3://bucket/job",
        "path": "/ckpt/a.b",
        "secretRef": {"name": "keys"},
        "env": [{"name": "AWS_REGION", "value": "eu-1"}],
        "keep": 1000,
        "settleSeconds": 1,
        "maxBandwidth": "50Mi",
        "perNode": True,
    },
    suspend=True,
    managedBy=MANAGED_HERE,
    ttlSecondsAfterFinished=0,
    activeDeadlineSeconds=0,
    maxRestarts=0,
    gang={"enabled": True, "timeoutSeconds": 1, "onTimeout": "Suspend", "priority": -5},
    metrics={"names": ["loss", "eval/accuracy.top-5", "_x"]},
)
_SIDECAR = {"name": "log", "volumeMounts": [{"name": "logs", "mountPath": "/workspace"}]}
_NODE = {"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/workspace/dataset"}]}

GOOD_TRAINJOBS = (
    Good("the-users-job", _seed_job()),
    Good("every-field", _EVERYTHING),
    Good("all-from-the-runtime", {**trainjob(), "spec": {"runtimeRef": {"name": "mine", "kind": "TrainingRuntime"}}}),
    Good("nothing-at-all", {**trainjob(), "spec": {}}),
    Good("most-nodes", trainjob(nodes=1000, trainer={"numProcPerNode": 1024})),
    Good("elastic", trainjob(nodes=3, framework="torch", elasticPolicy={"minNodes": 1, "maxNodes": 1000})),
    Good("elastic-without-a-number", trainjob(nodes=None, elasticPolicy={"minNodes": 2, "maxNodes": 2})),
    Good("checkpoints-by-default", trainjob(checkpoint={"storageUri": "pvc://claim/runs"})),
    Good("another-controllers", trainjob(managedBy="kueue.x-k8s.io/multikueue")),
    Good("a-claim-as-dataset", trainjob(datasetConfig={"storageUri": "pvc://claim/folder"})),
    Good("a-sidecar-with-a-workspace", trainjob(modelConfig={}, podSpecOverrides=[override(containers=[_SIDECAR])])),
    Good("a-dataset-of-ones-own", trainjob(podSpecOverrides=[override(containers=[_NODE])])),
    Good("name-with-dots-and-digits", trainjob("1." + "a" * 63 + ".b")),
)

GOOD_RUNTIMES = (
    Good("an-empty-runtime", runtime()),
    Good(
        "a-whole-runtime",
        runtime(
            framework="torch",
            numNodes=1000,
            numProcPerNode=1,
            templates={role: role_template(role, image="x", env=[{"name": "A", "value": "b"}]) for role in ROLES},
            workspace={"persistentVolumeClaim": {"claimName": "a.b-0"}},
        ),
    ),
    Good("a-runtime-of-a-namespace", runtime(namespaced=True, framework="plain", numProcPerNode="gpu")),
)
