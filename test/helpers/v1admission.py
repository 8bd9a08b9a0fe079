"""Jobs of `kubeflow.org/v1` that training-operator's webhooks accept or refuse, and with which text.

Numbers in names are those of the contract; they follow upstream's tests of its webhooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.v1manifests import Manifest, v1_manifest
from tfjob_controller.api.kubeflowv1.types import V1_KINDS

DNS_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
LONG = "must be no more than 63 characters"
# A valid job of each kind that the webhooks judge, by its replicas.
VALID: dict[str, Any] = {
    "TFJob": {"Worker": 2},
    "PyTorchJob": {"Master": 1, "Worker": 1},
    "XGBoostJob": {"Master": 1, "Worker": 2},
    "JAXJob": {"Worker": 1},
    "PaddleJob": {"Worker": 2},
}
TF, TORCH, BOOST, JAX, PADDLE = VALID
NAMELESS = {"name": "", "image": "training:1"}
# The number of the first case of each kind: its name, then containers, image, and the training container.
_FIRST = {TORCH: 81, TF: 92, BOOST: 98, JAX: 105, PADDLE: 110}
_BAD_NAMES = {TORCH: "0-test", TF: "00test", BOOST: "-test", JAX: "0-test", PADDLE: "__test"}
_MANAGED_BY = {TORCH: 88, TF: 97, BOOST: 104, PADDLE: 115}
_MANAGERS = '"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"'


@dataclass(frozen=True, slots=True)
class AdmissionCase:
    """A job and the text with which it is refused; None for one that is accepted."""

    id: str
    kind: str
    replicas: Mapping[str, Any] | None
    refusal: str | None
    name: str = "test"
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def manifest(self) -> Manifest:
        replicas = None if self.replicas is None else dict(self.replicas)
        return v1_manifest(self.kind, replicas, self.name, **self.spec)


def containers(*items: Any, **fields: Any) -> Manifest:
    """Returns a specification of replicas with these containers."""
    return {"template": {"spec": {"containers": list(items)}}, **fields}


def named(kind: str) -> Manifest:
    """Returns the training container of a kind, without an image."""
    return {"name": V1_KINDS[kind].container, "image": ""}


def _common(kind: str) -> list[AdmissionCase]:
    """The cases that all kinds have."""
    first, type_ = _FIRST[kind], "Master" if kind == BOOST else "Worker"
    path = f"spec.{V1_KINDS[kind].replicas_field}[{type_}].template.spec.containers"
    container = '"paddle"' if kind == PADDLE else V1_KINDS[kind].container
    bad_name = _BAD_NAMES[kind]
    templates = (
        ((), f"{path}: Required value: must be specified", "no containers"),
        ((named(kind),), f"{path}[0].image: Required value: must be required", "no image"),
        (
            (NAMELESS,),
            f"{path}: Required value: must have at least one container with name {container}",
            "no training container",
        ),
    )
    return [
        AdmissionCase(f"{kind} valid", kind, VALID[kind], None),
        AdmissionCase(f"{first} {kind} name", kind, VALID[kind], invalid_name(bad_name, DNS_1035), bad_name),
        *(
            AdmissionCase(f"{first + number} {kind} {what}", kind, {type_: containers(*items, replicas=1)}, refusal)
            for number, (items, refusal, what) in enumerate(templates, start=1)
        ),
    ]


def invalid_name(name: str, why: str) -> str:
    return f'metadata.name: Invalid value: "{name}": should match: {why}'


def _managed(kind: str, manager: str) -> AdmissionCase:
    refusal = f'spec.runPolicy.managedBy: Unsupported value: "{manager}": supported values: {_MANAGERS}'
    spec = {"runPolicy": {"managedBy": manager}}
    return AdmissionCase(f"{_MANAGED_BY[kind]} {kind} managed by {manager!r}", kind, VALID[kind], refusal, spec=spec)


def _unsupported(kind: str, type_: str, supported: str) -> AdmissionCase:
    path = f"spec.{V1_KINDS[kind].replicas_field}[{type_}]"
    refusal = f'{path}: Unsupported value: "{type_}": supported values: {supported}'
    return AdmissionCase(f"{kind} type {type_}", kind, {**VALID[kind], type_: 1}, refusal)


_TORCH = "spec.pytorchReplicaSpecs"
_BOTH = {"nprocPerNode": "1", "elasticPolicy": {"nProcPerNode": 1}}
CASES = (
    *(case for kind in VALID for case in _common(kind)),
    *(_managed(kind, manager) for kind in _MANAGED_BY for manager in ("other-job-controller", "")),
    *(_unsupported(kind, type_, '"Master", "Worker"') for kind in (TORCH, BOOST, PADDLE) for type_ in ("PS", "WORKER")),
    _unsupported(JAX, "Master", '"Worker"'),
    AdmissionCase("85 masters", TORCH, {"Master": 2}, f"{_TORCH}[Master].replicas: Forbidden: must be 1"),
    AdmissionCase("85 no number", TORCH, {"Master": None}, f"{_TORCH}[Master].replicas: Forbidden: must be 1"),
    AdmissionCase("86 nProcPerNode", TORCH, VALID[TORCH], None, spec={"elasticPolicy": {"nProcPerNode": 1}}),
    AdmissionCase(
        "87 both numbers of processes",
        TORCH,
        VALID[TORCH],
        "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode",
        spec=_BOTH,
    ),
    AdmissionCase(
        "90 elastic without workers",
        TORCH,
        {"Master": 1},
        f"{_TORCH}[Worker]: Required value: must be configured if elastic policy is used",
        spec={"elasticPolicy": {}},
    ),
    AdmissionCase("91 no worker", TORCH, {"Worker": 0}, f"{_TORCH}[Worker].replicas: Forbidden: must be at least 1"),
    AdmissionCase(
        "96 two chiefs",
        TF,
        {"Chief": None, "Master": None},
        "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role",
    ),
    AdmissionCase("TF any types", TF, {"Chief": 2, "PS": 0, "Helper": 1, "EVALUATOR": 1}, None),
    AdmissionCase("102 masters", BOOST, {"Master": 2}, "spec.xgbReplicaSpecs[Master].replicas: Forbidden: must be 1"),
    AdmissionCase(
        "103 no master", BOOST, {"Worker": 1}, "spec.xgbReplicaSpecs[Master]: Required value: must be present"
    ),
    AdmissionCase("no worker beside a master", BOOST, {"Master": 1, "Worker": 0}, None),
    AdmissionCase("two masters", PADDLE, {"Master": 2}, None),
    AdmissionCase("any manager", JAX, VALID[JAX], None, spec={"runPolicy": {"managedBy": "other-job-controller"}}),
    AdmissionCase("109 JAX", JAX, None, "spec.jaxReplicaSpecs: Required value: must be required"),
    AdmissionCase("114 Paddle", PADDLE, None, "spec.paddleReplicaSpecs: Required value: must be required"),
    AdmissionCase("a long name", TF, VALID[TF], None, "a" * 63),
    AdmissionCase("a name too long", TF, VALID[TF], invalid_name("a" * 64, LONG), "a" * 64),
    AdmissionCase("a bad name too long", TF, VALID[TF], invalid_name("0" * 64, f"{LONG},{DNS_1035}"), "0" * 64),
    *(
        AdmissionCase(f"managed by {manager}", kind, VALID[kind], None, spec={"runPolicy": {"managedBy": manager}})
        for kind in VALID
        for manager in ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
    ),
)
BY_ID = {case.id: case for case in CASES}
