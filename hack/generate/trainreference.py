"""The pages in docs/reference of the kinds for training in any framework."""

from __future__ import annotations

from generate.conditions import TRAINJOB_CONDITIONS
from generate.fieldtables import column_table, conditions_table, field_table, properties_of
from generate.markdown import code, page
from generate.trainkinds import TRAINING_RUNTIME, TRAINJOB
from tfjob_controller.api.common import storagevalidation
from tfjob_controller.api.tfjob.validation import GANG_FIXED
from tfjob_controller.api.trainjob import validation as validation
from tfjob_controller.api.trainjob.types import ROLES

# By name, so that a test can see that none is left out.
OF_SPECS = ("NODES_TWICE", "BAD_PROCS", "BAD_QUANTITY", "RESERVED", "UNKNOWN_SOURCE", "UNKNOWN_TARGET",
            "URI_WITH_LOGIN", "MODEL_MISSING", "MODEL_TWICE", "DATASET_COVERED", "MODEL_COVERED", "LABEL_WORDS",
            "BAD_METRIC", "ELASTIC_BOUNDS", "NODES_OUTSIDE", "ELASTIC_ALIAS", "ELASTIC_TORCH_ONLY")  # fmt: skip
OF_CHANGES = ("RUNTIME_REF_FIXED", "MANAGED_BY_FIXED", "ELASTIC_FIXED", "STARTED_FIXED")
OF_THE_CONTROLLER = ("FRAMEWORK_TWICE", "NODES_MISSING", "IMAGE_MISSING", "NO_STEP", "NO_CONTAINER",
                     "NO_INIT_CONTAINER")  # fmt: skip
OF_RUNTIMES = ("UNKNOWN_ROLE", "WORKER_MISSING", "BAD_PROCS")

# What each sentence that names no field is about.
_ABOUT = {
    "BAD_PROCS": "numProcPerNode",
    "BAD_QUANTITY": "resourcesPerNode",
    "RESERVED": "env of trainer and podSpecOverrides",
    "UNKNOWN_SOURCE": "storageUri of the dataset and of the model to begin with",
    "UNKNOWN_TARGET": "storageUri of the trained model and of checkpoints",
    "URI_WITH_LOGIN": "storageUri",
    "MODEL_MISSING": "modelConfig.input",
    "LABEL_WORDS": "the values of labels",
    "BAD_METRIC": "metrics.names",
    "STARTED_FIXED": "all else",
    "FRAMEWORK_TWICE": "spec",
    "NO_STEP": "targetJobs of podSpecOverrides",
    "NO_CONTAINER": "containers of podSpecOverrides",
    "NO_INIT_CONTAINER": "initContainers of podSpecOverrides",
    "UNKNOWN_ROLE": "templates",
    "WORKER_MISSING": "templates",
}


def render_trainjob() -> str:
    root = properties_of(TRAINJOB)
    return page(
        "TrainJob",
        "src/tfjob_controller/api and hack/generate",
        "`kubeflow.org/v2alpha1`, kind `TrainJob`, plural `trainjobs`, short name `trj`, category `kubeflow`. "
        "Subresources: `status`, and `scale` for jobs with `spec.elasticPolicy`.",
        "## Spec",
        field_table("spec", root["spec"]),
        "## Status",
        field_table("status", root["status"]),
        "## Conditions",
        conditions_table(TRAINJOB_CONDITIONS),
        "The chief is the launcher of an MPI job, else node 0; replicas are the pods of all steps, and "
        "`spec.maxRestarts` is what a TFJob calls `backoffLimit`. A job that has ended has exactly one of Complete and "
        "Failed.",
        "## Rules",
        "The API server refuses a job that breaks one of these, beside the types and limits above:",
        _sentences(OF_SPECS),
        "These names are reserved in `env`: " + ", ".join(map(code, validation.RESERVED_ENV)) + ".",
        "At any time it refuses a change of runtimeRef and managedBy; once the job has started, which is when its "
        "status has a phase, others too:",
        _sentences(OF_CHANGES) + f"\n- {GANG_FIXED}",
        "What needs the runtime or an annotation only the controller sees. It then says so in the condition Failed, "
        "and no pod is created:",
        _sentences(OF_THE_CONTROLLER),
        "That the runtime or the framework is not there, it says in the same way. Whether a bucket, an object or the "
        "key of a Secret is there, shows when what fetches it starts.",
        "## Columns of `kubectl get`",
        column_table(TRAINJOB),
    )


def render_trainingruntime() -> str:
    return page(
        "TrainingRuntime and ClusterTrainingRuntime",
        "src/tfjob_controller/api/trainjob/runtime.py and hack/generate",
        "`kubeflow.org/v2alpha1`, without status. A `TrainingRuntime` (plural `trainingruntimes`, "
        "short name `trt`) serves the TrainJobs of its namespace, a `ClusterTrainingRuntime` (plural "
        "`clustertrainingruntimes`, short name `ctrt`) those of all. Both have the same spec. A change counts for jobs "
        "that start after it.",
        "## Spec",
        field_table("spec", properties_of(TRAINING_RUNTIME)["spec"]),
        f"The roles in `templates` are {', '.join(map(code, ROLES))}.",
        "## Rules",
        "The API server refuses a runtime that breaks one of these, beside the types and limits above:",
        _sentences(OF_RUNTIMES),
        "## Columns of `kubectl get`",
        column_table(TRAINING_RUNTIME),
    )


def _sentences(names: tuple[str, ...]) -> str:
    return "\n".join(f"- {_sentence(name)}" for name in names)


def _sentence(name: str) -> str:
    source = validation if hasattr(validation, name) else storagevalidation
    said = getattr(source, name).format("*NAME*")
    return f"{_ABOUT[name]}: {said}" if name in _ABOUT else said
