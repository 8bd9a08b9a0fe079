"""Where dataset and model are for the pods of a TrainJob, and who brings them there and takes them away.

All see them below /workspace. Where the runtime names a volume claim, initializers and exporter are pods of their own,
and each job has a directory of its own in the claim. Else every node has its own empty volume, and initializes for
itself: the initializers are init containers of the nodes.

What is on a claim already (`pvc://claim/folder`) is mounted where it is looked for, and brought by nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfjob_controller.api.trainingruntime import RuntimeSpec
from tfjob_controller.api.trainjob import DATASET_INITIALIZER, MODEL_EXPORTER, MODEL_INITIALIZER, TrainJobSpec
from tfjob_controller.api.trainjobdefaults import dataset_uri_of, model_input_of, model_output_of, model_uri_of
from tfjob_controller.api.trainstorage import DATASET_PATH, MODEL_PATH, OUTPUT_PATH, WORKSPACE_PATH, SecretRef
from tfjob_controller.trainer.naming import MAX_LABEL
from tfjob_controller.trainer.podtemplates import Part, spec_of, with_container, with_env, with_mounts, with_volumes

VOLUME = "workspace"
STORAGE_URI = "STORAGE_URI"
_CLAIM = "pvc://"
# Digits of a hash where a claim's name is not the whole name of its volume.
_DIGEST = 8
NO_WORKSPACE = (
    "spec.modelConfig.output: what the nodes write is gone with them: name a runtime with a "
    "workspace.persistentVolumeClaim, or say pvc://"
)
# What an initializer may do, whatever the pod's own context allows.
_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True, slots=True)
class Carrier:
    """One pod or init container that brings something, or takes it away. `role` is its name, too."""

    role: str
    command: tuple[str, ...]
    uri: str
    env: Sequence[Part]
    secret: SecretRef | None


@dataclass(frozen=True, slots=True)
class Workspace:
    """`claim`: the runtime's; empty where each node has its own. `folder`: of this job in it."""

    carriers: tuple[Carrier, ...]
    claim: str
    folder: str
    # Claims that are mounted as they are, by path.
    mounted: Mapping[str, str]

    @property
    def is_needed(self) -> bool:
        return bool(self.carriers or self.claim)

    def of_roles(self, *roles: str) -> tuple[Carrier, ...]:
        return tuple(each for each in self.carriers if each.role in roles)


def workspace_of(spec: TrainJobSpec, runtime: RuntimeSpec | None, folder: str) -> Workspace:
    """`folder` is the job's own in a claim that jobs share."""
    claim = runtime.workspace.persistent_volume_claim.claim_name if runtime is not None and runtime.workspace else ""
    dataset, model, output = dataset_uri_of(spec), model_uri_of(spec), model_output_of(spec)
    mounted = {path: uri for path, uri in ((DATASET_PATH, dataset), (MODEL_PATH, model)) if _is_claim(uri)}
    if output is not None and _is_claim(output.storage_uri):
        mounted[OUTPUT_PATH] = output.storage_uri
    return Workspace(tuple(_carriers(spec)), claim, folder, mounted)


def workspace_problem(workspace: Workspace) -> str | None:
    if workspace.of_roles(MODEL_EXPORTER) and not workspace.claim:
        return NO_WORKSPACE
    return None


def _carriers(spec: TrainJobSpec) -> Iterator[Carrier]:
    dataset, model, output = spec.dataset_config, model_input_of(spec), model_output_of(spec)
    if dataset is not None and not _is_claim(dataset.storage_uri):
        words = ("initialize", "dataset")
        yield Carrier(DATASET_INITIALIZER, words, dataset.storage_uri, dataset.env, dataset.secret_ref)
    if model is not None and not _is_claim(model_uri_of(spec)):
        yield Carrier(MODEL_INITIALIZER, ("initialize", "model"), model_uri_of(spec), model.env, model.secret_ref)
    if output is not None and not _is_claim(output.storage_uri):
        yield Carrier(MODEL_EXPORTER, ("export",), output.storage_uri, output.env, output.secret_ref)


def _is_claim(uri: str) -> bool:
    return uri.startswith(_CLAIM)


def with_workspace(template: Part, container: str, workspace: Workspace) -> dict[str, Any]:
    """The template with the volumes, mounted in that container."""
    changed = with_volumes(template, _volumes(workspace))
    return with_container(changed, container, lambda each: with_mounts(each, _mounts(workspace)))


def carrier_template(carrier: Carrier, base: Part, image: str, workspace: Workspace) -> dict[str, Any]:
    """The pod of a carrier, on top of what the runtime says of it."""
    made = with_container(base, carrier.role, lambda each: _carrier_container(carrier, each, image))
    return with_workspace(made, carrier.role, workspace)


def with_init_containers(template: Part, carriers: Sequence[Carrier], bases: Mapping[str, Part], image: str,
                         workspace: Workspace) -> dict[str, Any]:  # fmt: skip
    """The nodes' template, with the carriers' containers before all others that it has."""
    spec = spec_of(template)
    made = [
        with_mounts(_carrier_container(each, bases.get(each.role, {}), image), _mounts(workspace)) for each in carriers
    ]
    return {**template, "spec": {**spec, "initContainers": [*made, *(spec.get("initContainers") or ())]}}


def _carrier_container(carrier: Carrier, base: Part, image: str) -> dict[str, Any]:
    """What the runtime says of it stays, but for what it is for."""
    env_from = [{"secretRef": {"name": carrier.secret.name}}] if carrier.secret is not None else []
    made = {
        "name": carrier.role,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": _SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **base,
        "args": list(carrier.command),
        "envFrom": [*(base.get("envFrom") or ()), *env_from],
    }
    return with_env(made, [*carrier.env, {"name": STORAGE_URI, "value": carrier.uri}])


def _volumes(workspace: Workspace) -> list[dict[str, Any]]:
    source: dict[str, Any] = {"emptyDir": {}}
    if workspace.claim:
        source = {"persistentVolumeClaim": {"claimName": workspace.claim}}
    own = [{"name": VOLUME, **source}] if workspace.is_needed else []
    claims = dict.fromkeys(_claim_of(uri)[0] for uri in workspace.mounted.values())
    return own + [{"name": _claim_volume(each), "persistentVolumeClaim": {"claimName": each}} for each in claims]


def _mounts(workspace: Workspace) -> list[dict[str, Any]]:
    shared: dict[str, Any] = {"name": VOLUME, "mountPath": WORKSPACE_PATH}
    if workspace.claim:
        shared["subPath"] = workspace.folder
    return ([shared] if workspace.is_needed else []) + [
        _claim_mount(path, *_claim_of(uri)) for path, uri in workspace.mounted.items()
    ]


def _claim_mount(path: str, claim: str, folder: str) -> dict[str, Any]:
    mount = {"name": _claim_volume(claim), "mountPath": path}
    return {**mount, "subPath": folder} if folder else mount


def _claim_volume(claim: str) -> str:
    """Names of volumes are labels: without dots, and not longer than one. No two claims have the same."""
    name = f"claim-{claim}"
    if "." not in name and len(name) <= MAX_LABEL:
        return name
    digest = hashlib.sha256(claim.encode()).hexdigest()[:_DIGEST]
    return f"{name.replace('.', '-')[: MAX_LABEL - _DIGEST - 1]}-{digest}"


def _claim_of(uri: str) -> tuple[str, str]:
    """The claim, and the folder in it."""
    claim, _, folder = uri.removeprefix(_CLAIM).partition("/")
    return claim, folder.strip("/")
