"""The pages in docs/reference of custom kinds: their fields, conditions, rules and columns."""

from __future__ import annotations

from types import ModuleType

from generate.conditions import TFJOB_CONDITIONS, TRAINJOB_CONDITIONS
from generate.crd import CustomKind
from generate.fieldtables import column_table, conditions_table, field_table, properties_of
from generate.kinds import GANG, TFJOB
from generate.markdown import code, page
from generate.trainkinds import TRAINING_RUNTIME, TRAINJOB
from tfjob_controller.api import gang
from tfjob_controller.api.common import storagevalidation
from tfjob_controller.api.tfjob import validation as tfjobvalidation
from tfjob_controller.api.trainjob import validation
from tfjob_controller.api.trainjob.types import ROLES

# The messages of the rules of each page, by name and in its order. A test checks that none is left out.
_TFJOB_SPECS = ("MISSING_CHIEF", "CHIEF_OUTSIDE", "CHIEF_NEVER_ENDS", "WORKER_REPLICAS_WITHOUT_WORKER",
                "MIN_WORKERS_ABOVE_WORKERS", "AUTOSCALING_WITHOUT_WORKER", "MIN_ABOVE_MAX", "WORKERS_OUTSIDE",
                "MIN_WORKERS_TWICE", "CHIEF_MAY_LEAVE", "BAD_PATTERN", "PER_NODE",
                "MASTER_REPLICAS", "TEMPLATE_MISSING", "CONTAINER_MISSING")  # fmt: skip
_TFJOB_CHANGES = ("MANAGED_BY_FIXED", "RUNTIME_ID_FIXED", "TYPES_FIXED", "TEMPLATE_FIXED", "PORT_FIXED",
                  "REPLICAS_FIXED", "TERMINATION_POLICY_FIXED", "GANG_FIXED", "RESIZE_FIXED", "TOTAL_STEPS_FIXED",
                  "CHECKPOINT_FIXED")  # fmt: skip
_GANG_SPECS = ("MIN_ABOVE_COUNT", "MAX_BELOW_COUNT", "TOO_MANY_MEMBERS")
_TRAINJOB_SPECS = ("NODES_TWICE", "BAD_PROCS", "BAD_QUANTITY", "RESERVED", "UNKNOWN_SOURCE", "UNKNOWN_TARGET",
                   "URI_WITH_LOGIN", "MODEL_MISSING", "MODEL_TWICE", "DATASET_COVERED", "MODEL_COVERED", "LABEL_WORDS",
                   "BAD_METRIC", "ELASTIC_BOUNDS", "NODES_OUTSIDE", "ELASTIC_ALIAS", "ELASTIC_TORCH_ONLY")  # fmt: skip
_TRAINJOB_CHANGES = ("RUNTIME_REF_FIXED", "MANAGED_BY_FIXED", "ELASTIC_FIXED", "STARTED_FIXED")
_CONTROLLER_RULES = ("FRAMEWORK_TWICE", "NODES_MISSING", "IMAGE_MISSING", "NO_STEP", "NO_CONTAINER",
                     "NO_INIT_CONTAINER")  # fmt: skip
_RUNTIME_SPECS = ("UNKNOWN_ROLE", "WORKER_MISSING", "BAD_PROCS")

# What each message that names no field is about.
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
    "STARTED_FIXED": "other fields",
    "FRAMEWORK_TWICE": "spec",
    "NO_STEP": "targetJobs of podSpecOverrides",
    "NO_CONTAINER": "containers of podSpecOverrides",
    "NO_INIT_CONTAINER": "initContainers of podSpecOverrides",
    "UNKNOWN_ROLE": "templates",
    "WORKER_MISSING": "templates",
}


def render_tfjob() -> str:
    of_uris = (storagevalidation.UNKNOWN_TARGET, storagevalidation.URI_WITH_LOGIN)
    return _page(
        TFJOB,
        "src/tfjob_controller/api and hack/generate",
        "`kubeflow.org/v1alpha1`, kind `TFJob`, plural `tfjobs`, short name `tfj`, category `kubeflow`. "
        "Subresources: `status`, and `scale`, which sets the workers.",
        "## Conditions",
        conditions_table(TFJOB_CONDITIONS),
        "A job that has ended has exactly one of Succeeded and Failed; Running and Restarting are then False with the "
        "same reason.",
        "## Rules",
        "Besides the types and limits above, the API server enforces these rules:",
        _rules(_TFJOB_SPECS, tfjobvalidation) + "".join(f"\n- checkpoint.storageUri: {text}" for text in of_uris),
        "managedBy can never change. Once `RuntimeId` is set, further changes are refused:",
        _rules(_TFJOB_CHANGES, tfjobvalidation),
        _TEMPLATES,
    )


def render_gang() -> str:
    return _page(
        GANG,
        "src/tfjob_controller/api/gang.py and hack/generate",
        "`scheduling.kubeflow.org/v1alpha1`, kind `Gang`, plural `gangs`, short name `gg`. Subresource: `status`. The "
        "owner of the pods writes the spec and creates no pod before the phase is Admitted; the gang scheduler writes "
        "the status. Pods carry the labels `scheduling.kubeflow.org/gang`, `/member` and `/attempt`; the name of a "
        "Gang therefore has 63 characters at most.",
        "## Rules",
        "Besides the types and limits above, the API server enforces these rules:",
        _rules(_GANG_SPECS, gang),
    )


def render_trainjob() -> str:
    return _page(
        TRAINJOB,
        "src/tfjob_controller/api and hack/generate",
        "`kubeflow.org/v2alpha1`, kind `TrainJob`, plural `trainjobs`, short name `trj`, category `kubeflow`. "
        "Subresources: `status`, and `scale` for jobs with `spec.elasticPolicy`.",
        "## Conditions",
        conditions_table(TRAINJOB_CONDITIONS),
        "The chief is the launcher of an MPI job, else node 0; replicas are the pods of all steps, and "
        "`spec.maxRestarts` corresponds to `backoffLimit` of a TFJob. A job that has ended has exactly one of Complete "
        "and Failed.",
        "## Rules",
        "Besides the types and limits above, the API server enforces these rules:",
        _rules(_TRAINJOB_SPECS, validation, storagevalidation),
        "These names are reserved in `env`: " + ", ".join(map(code, validation.RESERVED_ENV)) + ".",
        "runtimeRef and managedBy can never change. Once the job has started, that is, once its status has a phase, "
        "further changes are refused:",
        _rules((*_TRAINJOB_CHANGES, "GANG_FIXED"), validation, tfjobvalidation),
        "The controller enforces the rules that concern the runtime or an annotation. If a job breaks one, the "
        "condition Failed has the message, and no pod is created:",
        _rules(_CONTROLLER_RULES, validation),
        "It reports a missing runtime or framework in the same way. A missing bucket, object or key of a Secret is "
        "detected when the initializer or exporter starts.",
    )


def render_trainingruntime() -> str:
    return _page(
        TRAINING_RUNTIME,
        "src/tfjob_controller/api/trainjob/runtime.py and hack/generate",
        "`kubeflow.org/v2alpha1`, without status. A `TrainingRuntime` (plural `trainingruntimes`, "
        "short name `trt`) serves the TrainJobs of its namespace, a `ClusterTrainingRuntime` (plural "
        "`clustertrainingruntimes`, short name `ctrt`) those of all. Both have the same spec. A change applies to jobs "
        "that start after it.",
        f"The roles in `templates` are {', '.join(map(code, ROLES))}.",
        "## Rules",
        "Besides the types and limits above, the API server enforces these rules:",
        _rules(_RUNTIME_SPECS, validation),
        title="TrainingRuntime and ClusterTrainingRuntime",
    )


def _page(kind: CustomKind, source: str, intro: str, *parts: str, title: str = "") -> str:
    """Returns the page of a kind: `parts` stand between its fields and its columns."""
    schemas = properties_of(kind)
    fields = [("## Spec", field_table("spec", schemas["spec"]))]
    if kind.status is not None:
        fields.append(("## Status", field_table("status", schemas["status"])))
    tables = [text for heading_and_table in fields for text in heading_and_table]
    columns = ("## Columns of `kubectl get`", column_table(kind))
    return page(title or kind.resource.kind, source, intro, *tables, *parts, *columns)


def _rules(names: tuple[str, ...], *modules: ModuleType) -> str:
    """Returns the list of these messages, each of the first module that has it."""
    lines = []
    for name in names:
        message = next(getattr(module, name) for module in modules if hasattr(module, name))
        text = message.format("*TYPE*" if modules[0] is tfjobvalidation else "*NAME*")
        is_about = _ABOUT.get(name, "") if modules[0] is validation else ""
        lines.append(f"- {is_about}: {text}" if is_about else f"- {text}")
    return "\n".join(lines)


_TEMPLATES = """
If the CRD is older than the controller and accepts such a job, the controller reports the same message: phase `Failed`,
`invalid job spec: …` as the reason, a Warning event, and no children.

Templates keep all fields, including those that this version of Kubernetes does not have. One change of a started job's
template is not detected: the replacement of a field that pods and containers of Kubernetes 1.36 do not have by another
such field. Existing children are never changed. The API server detects other errors in a template, such as an image
without a name, when the children are created; the job then fails with the message of the API server.
"""
