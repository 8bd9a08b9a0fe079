"""The kinds TFJob and Gang, and the table of all kinds."""

from __future__ import annotations

from generate.crd import CustomKind
from generate.kubernetestypes import QUANTITY
from generate.podtemplate import pod_template_schema
from generate.rules import CHECKPOINT_RULES, GANG_SPEC_RULES, PROGRESS_RULES, REPLICA_SPEC_RULES, SPEC_RULES
from generate.schema import Extras, keyed
from generate.storagerules import ENV, OUTPUT_RULES, checked
from generate.trainkinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME, TRAINJOB
from tfjob_controller.api.common.policies import RESTART_POLICIES
from tfjob_controller.api.gang import (
    GANGS,
    MAX_EXPRESSIONS,
    MAX_KINDS,
    MAX_MEMBERS,
    MAX_TERMS,
    MAX_VALUES,
    NODE_AFFINITY_TOO_LARGE,
    GangSpec,
    GangStatus,
)
from tfjob_controller.api.tfjob.status import TFJobStatus
from tfjob_controller.api.tfjob.types import TFJOBS, TFJobSpec
from tfjob_controller.jobs.naming import MAX_LABEL

_RESTART_POLICY = {
    "description": "How a failed container is restarted: OnFailure by the kubelet in the same pod, Never by the "
    "controller with a new pod. Default: OnFailure.",
    "enum": list(RESTART_POLICIES),
}

TFJOB = CustomKind(
    TFJOBS,
    source="src/tfjob_controller/api/tfjob/types.py",
    description="A distributed TensorFlow job: replicas that know each other's addresses and end together.",
    short_name="tfj",
    spec=TFJobSpec,
    spec_description="The desired state of the job.",
    status=TFJobStatus,
    status_description="The observed state of the job.",
    columns=(
        ("Phase", ".status.phase", "The phase of the job.", False, "string"),
        ("State", ".status.summary", "Pending, Running, Suspended, Succeeded or Failed.", False, "string"),
        (
            "Masters",
            ".status.ready.master",
            "Masters that are ready or have succeeded, of the desired number.",
            False,
            "string",
        ),
        (
            "Workers",
            ".status.ready.worker",
            "Workers that are ready or have succeeded, of the desired number.",
            False,
            "string",
        ),
        (
            "PS",
            ".status.ready.ps",
            "Parameter servers that are ready or have succeeded, of the desired number.",
            False,
            "string",
        ),
        ("Runtime-Id", ".spec.RuntimeId", "The characters in the names of all children.", True, "string"),
        ("Reason", ".status.reason", "Why.", True, "string"),
    ),
    extras=Extras(
        of_type={
            "TFJobSpec": {"required": ["replicaSpecs"], "x-kubernetes-validations": SPEC_RULES},
            "ReplicaSpec": {"x-kubernetes-validations": REPLICA_SPEC_RULES},
            "ProgressSource": {"x-kubernetes-validations": PROGRESS_RULES},
            "Checkpoint": checked([*OUTPUT_RULES, *CHECKPOINT_RULES]),
        },
        of_field={
            ("TFJobSpec", "replica_specs"): keyed("tfReplicaType"),
            ("TFJobStatus", "conditions"): keyed("type"),
            ("ReplicaSpec", "template"): pod_template_schema({("PodSpec", "restartPolicy"): _RESTART_POLICY}),
            ("Checkpoint", "env"): ENV,
        },
    ),
    categories=("kubeflow",),
    subresources={
        "scale": {
            "specReplicasPath": ".spec.workerReplicas",
            "statusReplicasPath": ".status.workerReplicas",
            "labelSelectorPath": ".status.workerSelector",
        },
    },
)

# A quantity as resource.Quantity reads it, but without a sign, since requests are not negative.
_QUANTITY = {
    "type": "string",
    "maxLength": 64,
    "pattern": f"^{QUANTITY}$",
}
_COUNT_BY_MEMBER = {
    "maxProperties": MAX_KINDS,
    "additionalProperties": {"type": "integer", "format": "int32", "minimum": 0, "maximum": MAX_MEMBERS},
}
_REQUIREMENTS = {
    "description": "Requirements that must all match.",
    "type": "array",
    "maxItems": MAX_EXPRESSIONS,
    "items": {
        "type": "object",
        "properties": {
            "key": {"description": "The label of the node, or its field.", "type": "string"},
            "operator": {"description": "In, NotIn, Exists, DoesNotExist, Gt or Lt.", "type": "string"},
            "values": {
                "description": "The values with which the operator compares.",
                "type": "array",
                "maxItems": MAX_VALUES,
                "items": {"type": "string"},
            },
        },
    },
}
_TOLERATION = {
    "type": "object",
    "properties": {
        "effect": {"description": "The tolerated effect; empty for all.", "type": "string"},
        "key": {"description": "The key of the taint; empty for all.", "type": "string"},
        "operator": {"description": "How the value is compared. Default: Equal.", "type": "string"},
        "tolerationSeconds": {
            "description": "The seconds for which NoExecute is tolerated. Default: no limit.",
            "type": "integer",
            "format": "int64",
        },
        "value": {"description": "The value of the taint.", "type": "string"},
    },
}


def _sum_over_terms(of_part: str) -> str:
    """A CEL sum over both lists of requirements of all terms; `of_part` has {} for such a list."""
    parts = (f"t.{name}" for name in ("matchExpressions", "matchFields"))
    of_term = " + ".join(f"(has({part}) ? {of_part.format(part)} : 0)" for part in parts)
    return f"self.nodeSelectorTerms.map(t, {of_term}).sum()"


_NODE_AFFINITY = {
    "properties": {
        "nodeSelectorTerms": {
            "description": "Alternative terms, of which one must match.",
            "type": "array",
            "maxItems": MAX_TERMS,
            "items": {
                "type": "object",
                "properties": {"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS},
            },
        }
    },
    "x-kubernetes-validations": [
        {
            "rule": f"!has(self.nodeSelectorTerms) || ({_sum_over_terms('{}.size()')} <= {MAX_EXPRESSIONS} && "
            f"{_sum_over_terms('{}.map(e, has(e.values) ? e.values.size() : 0).sum()')} <= {MAX_VALUES})",
            "message": NODE_AFFINITY_TOO_LARGE,
        }
    ],
}
_LABEL = {"description": "The value of a label of its pods.", "type": "string", "maxLength": MAX_LABEL}

GANG = CustomKind(
    GANGS,
    source="src/tfjob_controller/api/gang.py",
    description="Pods that run together or not at all. Their owner creates them once the gang is admitted.",
    short_name="gg",
    spec=GangSpec,
    spec_description="The pods that must run together, and how long they may wait.",
    status=GangStatus,
    status_description="The observed state of the gang.",
    columns=(
        ("Phase", ".status.phase", "The phase of the gang.", False, "string"),
        ("Members", ".status.members", "Pods with a node, of all pods.", False, "string"),
        ("Priority", ".spec.priority", "Gangs of higher priority come first.", False, "integer"),
        ("Position", ".status.position", "The position in the queue.", False, "integer"),
        ("Message", ".status.message", "A description of the state.", False, "string"),
    ),
    extras=Extras(
        of_type={"GangSpec": {"required": ["members"], "x-kubernetes-validations": GANG_SPEC_RULES}},
        of_field={
            ("GangSpec", "members"): keyed("name"),
            ("GangSpec", "min_members"): _COUNT_BY_MEMBER,
            ("GangSpec", "max_members"): _COUNT_BY_MEMBER,
            ("Member", "resources"): {"additionalProperties": _QUANTITY},
            ("Member", "tolerations"): {"items": _TOLERATION},
            ("Member", "node_affinity"): _NODE_AFFINITY,
            # A list by node would cost the API server seconds for each write of thousands of nodes, and would double
            # the object, since each entry would have an owner.
            ("GangStatus", "placement"): {"x-kubernetes-list-type": "atomic"},
            ("GangStatus", "missing"): keyed("resource"),
            ("GangStatus", "conditions"): keyed("type"),
        },
    ),
    metadata={"type": "object", "properties": {"name": _LABEL}},
)

KINDS = (TFJOB, GANG, TRAINJOB, TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
