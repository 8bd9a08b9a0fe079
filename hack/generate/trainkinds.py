"""The kinds TrainJob, TrainingRuntime and ClusterTrainingRuntime."""

from __future__ import annotations

from generate import trainjobrules as rules
from generate.conditions import TRAINJOB_CONDITIONS
from generate.crd import Column, CustomKind
from generate.podtemplate import kubernetes_schema, pod_template_schema
from generate.schema import INT_OR_STRING, Extras, keyed
from generate.storagerules import ENV, INPUT_RULES, OUTPUT_RULES, checked, required_text
from tfjob_controller.api.common.schema import MAX_LABEL_VALUE
from tfjob_controller.api.common.status import MAX_METRIC_NAME
from tfjob_controller.api.trainjob.runtime import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, RuntimeSpec
from tfjob_controller.api.trainjob.types import ROLES, TRAINJOBS, TrainJobSpec, TrainJobStatus
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.kube.names import MAX_NAME

# Longest of a path in a container (Linux' PATH_MAX).
_MAX_PATH = 4096
_CONDITIONS = [*dict.fromkeys(type_ for type_, _ in TRAINJOB_CONDITIONS)]

_TRAINING_ENV = {"items": {**ENV["items"], **checked(rules.ENV_RULES)}, **keyed("name")}
_VOLUME = kubernetes_schema("Volume", {("Volume", "name"): required_text(MAX_LABEL_VALUE)})
_MOUNT = kubernetes_schema(
    "VolumeMount",
    {
        ("VolumeMount", "name"): required_text(MAX_LABEL_VALUE),
        ("VolumeMount", "mountPath"): required_text(_MAX_PATH),
    },
)
_REFERENCE = kubernetes_schema("LocalObjectReference", {("LocalObjectReference", "name"): required_text(MAX_NAME)}) | {
    "required": ["name"]
}
_QUANTITIES = {"additionalProperties": INT_OR_STRING | {"maxLength": 64} | checked(rules.QUANTITY_RULES)}

TRAINJOB = CustomKind(
    TRAINJOBS,
    source="src/tfjob_controller/api/trainjob/types.py",
    description="A distributed training job of any framework: nodes that know each other and end together.",
    short_name="trj",
    spec=TrainJobSpec,
    spec_description="The desired state of the job.",
    status=TrainJobStatus,
    status_description="The observed state of the job.",
    columns=(
        ("State", ".status.summary", "Pending, Running, Suspended, Succeeded or Failed.", False, "string"),
        ("Nodes", ".status.nodes", "Nodes that are ready or have succeeded, of the desired number.", False, "string"),
        ("Runtime", ".status.runtime", "The runtime that the job uses.", False, "string"),
        ("Reason", ".status.reason", "Why.", True, "string"),
        ("Restarts", ".status.restarts", "The number of restarts of all nodes.", True, "integer"),
    ),
    extras=Extras(
        of_type={
            "TrainJobSpec": checked(rules.SPEC_RULES),
            "ElasticPolicy": checked(rules.ELASTIC_RULES),
            "StorageInput": checked(rules.MODEL_RULES),
            "StorageOutput": checked(OUTPUT_RULES),
            "Checkpoint": checked(OUTPUT_RULES),
            "DatasetConfig": checked(INPUT_RULES),
        },
        of_field={
            ("StorageInput", "env"): ENV,
            ("StorageOutput", "env"): ENV,
            ("Checkpoint", "env"): ENV,
            ("DatasetConfig", "env"): ENV,
            ("Trainer", "env"): _TRAINING_ENV,
            ("Trainer", "num_proc_per_node"): checked(rules.PROCS_RULES),
            ("ResourcesPerNode", "requests"): _QUANTITIES,
            ("ResourcesPerNode", "limits"): _QUANTITIES,
            ("ContainerOverride", "env"): _TRAINING_ENV,
            ("ContainerOverride", "volume_mounts"): {"items": _MOUNT},
            ("PodSpecOverride", "volumes"): {"items": _VOLUME},
            ("ElasticPolicy", "metrics"): {"items": kubernetes_schema("MetricSpec")},
            ("PodSpecOverride", "tolerations"): {"items": kubernetes_schema("Toleration")},
            ("PodSpecOverride", "affinity"): kubernetes_schema("Affinity"),
            ("PodSpecOverride", "image_pull_secrets"): {"items": _REFERENCE},
            ("TrainJobSpec", "labels"): {
                "additionalProperties": {"type": "string", **checked(rules.LABEL_RULES), "maxLength": MAX_LABEL_VALUE}
            },
            ("MetricsSource", "names"): {
                "items": {"type": "string", **checked(rules.METRIC_RULES), "maxLength": MAX_METRIC_NAME},
                "x-kubernetes-list-type": "set",
            },
            ("TrainJobStatus", "conditions"): keyed("type"),
            ("TrainJobStatus", "jobs_status"): keyed("name"),
            ("TrainJobStatus", "metrics"): keyed("name"),
            ("JobCondition", "type"): {"description": f"{', '.join(_CONDITIONS[:-1])} or {_CONDITIONS[-1]}."},
        },
    ),
    categories=("kubeflow",),
    rules=rules.ROOT_RULES,
    subresources={
        "scale": {
            "specReplicasPath": ".spec.numNodes",
            "statusReplicasPath": ".status.currentNodes",
            "labelSelectorPath": ".status.selector",
        },
    },
)

_TEMPLATES = {
    "maxProperties": len(ROLES),
    "additionalProperties": pod_template_schema(),
    **checked(rules.TEMPLATE_RULES),
}
_RUNTIME_EXTRAS = Extras(
    of_field={
        ("RuntimeSpec", "num_proc_per_node"): checked(rules.PROCS_RULES),
        ("RuntimeSpec", "templates"): _TEMPLATES,
    }
)
_RUNTIME_COLUMNS: tuple[Column, ...] = (
    ("Framework", ".spec.framework", "The framework of the jobs.", False, "string"),
    ("Nodes", ".spec.numNodes", "The default number of nodes.", False, "integer"),
)


def _runtime(resource: Resource[Object], description: str, short_name: str) -> CustomKind:
    return CustomKind(
        resource,
        source="src/tfjob_controller/api/trainjob/runtime.py",
        description=description,
        short_name=short_name,
        spec=RuntimeSpec,
        spec_description="The settings that the jobs of the runtime share.",
        columns=_RUNTIME_COLUMNS,
        extras=_RUNTIME_EXTRAS,
    )


TRAINING_RUNTIME = _runtime(TRAINING_RUNTIMES, "Default values for the TrainJobs of this namespace.", "trt")
CLUSTER_TRAINING_RUNTIME = _runtime(
    CLUSTER_TRAINING_RUNTIMES,
    "Default values for the TrainJobs of all namespaces.",
    "ctrt",
)
