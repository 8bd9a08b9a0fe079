"""The pod templates of a TrainJob's roles: the runtime's templates with the overrides of the job, and the workspace.

The workspace is where the dataset and the model are. All pods see them below /workspace. If the runtime names a volume
claim, initializers and exporter are pods of their own, and each job has its own directory in the claim. Otherwise every
node has an empty volume and initializers run as init containers of the nodes. Data that is already on a claim
(`pvc://claim/folder`) is mounted, and neither fetched nor exported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfjob_controller.api.common.accelerators import accelerators_in
from tfjob_controller.api.common.quantity import CPU, milli_of
from tfjob_controller.api.common.storage import DATASET_PATH, MODEL_PATH, OUTPUT_PATH, WORKSPACE_PATH
from tfjob_controller.api.trainjob.defaults import dataset_uri_of, model_input_of, model_output_of, model_uri_of
from tfjob_controller.api.trainjob.runtime import RuntimeSpec
from tfjob_controller.api.trainjob.types import (
    DATASET_INITIALIZER,
    MODEL_EXPORTER,
    MODEL_INITIALIZER,
    NODE,
    ContainerOverride,
    PodSpecOverride,
    Trainer,
    TrainJobSpec,
)
from tfjob_controller.jobs.podtemplate.merge import (
    Part,
    container_of,
    override_items,
    spec_of,
    with_container,
    with_env,
    with_mounts,
    with_spec,
    with_volumes,
)
from tfjob_controller.jobs.podtemplate.storage import (
    StorageContainer,
    claim_mount,
    claim_of,
    claim_volume,
    is_claim,
    security_context_after,
    storage_container,
)


def trainer_template(
    spec: TrainJobSpec, base: Part, role: str, *, runs_command: bool, trains: bool = True
) -> dict[str, Any]:
    """The template of one role: the runtime's, then podSpecOverrides, then spec.trainer.

    `runs_command`: these pods run the job's command (with MPI only the launcher does). `trains`: spec.trainer applies.
    """
    template: dict[str, Any] = with_container(base, role)
    for override in spec.pod_spec_overrides:
        if any(target.name == role for target in override.target_jobs):
            template = _overridden(template, override)
    if not trains:
        return template
    return with_container(
        template, role, lambda container: _trainer(container, spec.trainer, role, runs_command=runs_command)
    )


def _overridden(template: Part, override: PodSpecOverride) -> dict[str, Any]:
    spec = spec_of(template)
    changed = with_spec(
        template,
        serviceAccountName=override.service_account_name,
        nodeSelector={**(spec.get("nodeSelector") or {}), **override.node_selector},
        tolerations=[*(spec.get("tolerations") or ()), *override.tolerations],
        affinity=override.affinity,
        imagePullSecrets=override_items(spec.get("imagePullSecrets"), override.image_pull_secrets),
        priorityClassName=override.priority_class_name,
        schedulerName=override.scheduler_name,
        containers=_containers(spec.get("containers"), override.containers),
        initContainers=_containers(spec.get("initContainers"), override.init_containers),
    )
    return with_volumes(changed, override.volumes)


def _containers(present: Iterable[Part] | None, overrides: Iterable[ContainerOverride]) -> list[Part]:
    by_name = {override.name: override for override in overrides}
    return [_with(container, by_name.get(container.get("name", ""))) for container in present or ()]


def _with(container: Part, override: ContainerOverride | None) -> Part:
    if override is None:
        return container
    return with_mounts(with_env(container, override.env), override.volume_mounts)


def _trainer(container: Part, trainer: Trainer, role: str, *, runs_command: bool) -> dict[str, Any]:
    changed = with_env(container, trainer.env)
    changed.setdefault("imagePullPolicy", "IfNotPresent")
    if trainer.image:
        changed["image"] = trainer.image
    if runs_command and trainer.command:
        changed["command"] = list(trainer.command)
        # The runtime's arguments belong to its own command.
        changed.pop("args", None)
    if runs_command and trainer.args:
        changed["args"] = list(trainer.args)
    if role == NODE:
        changed = _with_resources(changed, trainer)
    return changed


def _with_resources(container: dict[str, Any], trainer: Trainer) -> dict[str, Any]:
    wanted = trainer.resources_per_node
    own = container.get("resources") or {}
    resources = {
        **own,
        **({"requests": {**(own.get("requests") or {}), **wanted.requests}} if wanted.requests else {}),
        **({"limits": {**(own.get("limits") or {}), **wanted.limits}} if wanted.limits else {}),
    }
    return {**container, "resources": resources} if resources else container


def node_resources(spec: TrainJobSpec, base: Part, configured: Collection[str]) -> tuple[dict[str, int], float]:
    """Accelerators by resource and CPUs of one node, by its limits or else its requests; 0 if neither is set.

    `configured` are the accelerators of the controller's config file.
    """
    container = _with_resources(dict(container_of(spec_of(base), NODE) or {}), spec.trainer)
    resources = container.get("resources") or {}
    amounts: Mapping[str, Any] = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return accelerators_in(amounts, configured), milli_of(str(amounts.get(CPU, "0"))) / 1000


VOLUME = "workspace"
NO_WORKSPACE = (
    "spec.modelConfig.output: the nodes' files are deleted with their pods: use a runtime with a "
    "workspace.persistentVolumeClaim, or a pvc:// URI"
)


@dataclass(frozen=True, slots=True)
class JobWorkspace:
    """`claim` is the runtime's, empty if each node has its own volume; `folder` is the job's directory in it."""

    storage_containers: tuple[StorageContainer, ...]
    claim: str
    folder: str
    # The pvc:// URIs that are mounted, by path.
    mounted: Mapping[str, str]

    @property
    def is_needed(self) -> bool:
        return bool(self.storage_containers or self.claim)

    def of_roles(self, *roles: str) -> tuple[StorageContainer, ...]:
        return tuple(container for container in self.storage_containers if container.role in roles)


def job_workspace(spec: TrainJobSpec, runtime: RuntimeSpec | None, folder: str) -> JobWorkspace:
    """The workspace of a job. `folder` is its directory in a claim that jobs share."""
    claim = runtime.workspace.persistent_volume_claim.claim_name if runtime is not None and runtime.workspace else ""
    dataset, model, output = dataset_uri_of(spec), model_uri_of(spec), model_output_of(spec)
    mounted = {path: uri for path, uri in ((DATASET_PATH, dataset), (MODEL_PATH, model)) if is_claim(uri)}
    if output is not None and is_claim(output.storage_uri):
        mounted[OUTPUT_PATH] = output.storage_uri
    return JobWorkspace(tuple(_storage_containers(spec)), claim, folder, mounted)


def workspace_problem(workspace: JobWorkspace) -> str | None:
    if workspace.of_roles(MODEL_EXPORTER) and not workspace.claim:
        return NO_WORKSPACE
    return None


def _storage_containers(spec: TrainJobSpec) -> Iterator[StorageContainer]:
    dataset, model, output = spec.dataset_config, model_input_of(spec), model_output_of(spec)
    if dataset is not None and not is_claim(dataset.storage_uri):
        command = ("initialize", "dataset")
        yield StorageContainer(DATASET_INITIALIZER, command, dataset.storage_uri, dataset.env, dataset.secret_ref)
    if model is not None and not is_claim(model_uri_of(spec)):
        yield StorageContainer(
            MODEL_INITIALIZER, ("initialize", "model"), model_uri_of(spec), model.env, model.secret_ref
        )
    if output is not None and not is_claim(output.storage_uri):
        yield StorageContainer(MODEL_EXPORTER, ("export",), output.storage_uri, output.env, output.secret_ref)


def with_workspace(template: Part, container: str, workspace: JobWorkspace) -> dict[str, Any]:
    """Adds the workspace's volumes and mounts them in that container."""
    changed = with_volumes(template, _volumes(workspace))
    return with_container(changed, container, lambda part: with_mounts(part, _mounts(workspace)))


def storage_template(
    storage: StorageContainer, base: Part, image: str, workspace: JobWorkspace, writer: Part | None = None
) -> dict[str, Any]:
    """The pod of an initializer or exporter, based on the runtime's template.

    `writer` is the template of the pods whose files an exporter reads: it runs as their user.
    """
    security: dict[str, Any] = {}
    if writer is not None:
        spec = spec_of(writer)
        security = {"securityContext": security_context_after(container_of(spec, NODE) or {}, spec)}
    template = with_container(
        base, storage.role, lambda container: storage_container(storage, {**security, **container}, image)
    )
    return with_workspace(template, storage.role, workspace)


def with_init_containers(
    template: Part,
    initializers: Sequence[StorageContainer],
    bases: Mapping[str, Part],
    image: str,
    workspace: JobWorkspace,
) -> dict[str, Any]:
    """Adds initializers to the nodes' template, before its other init containers."""
    spec = spec_of(template)
    mounts = _mounts(workspace)
    added = [
        with_mounts(storage_container(initializer, bases.get(initializer.role, {}), image), mounts)
        for initializer in initializers
    ]
    return {**template, "spec": {**spec, "initContainers": [*added, *(spec.get("initContainers") or ())]}}


def _volumes(workspace: JobWorkspace) -> list[dict[str, Any]]:
    source: dict[str, Any] = {"emptyDir": {}}
    if workspace.claim:
        source = {"persistentVolumeClaim": {"claimName": workspace.claim}}
    own = [{"name": VOLUME, **source}] if workspace.is_needed else []
    claims = dict.fromkeys(claim_of(uri)[0] for uri in workspace.mounted.values())
    return own + [{"name": claim_volume(claim), "persistentVolumeClaim": {"claimName": claim}} for claim in claims]


def _mounts(workspace: JobWorkspace) -> list[dict[str, Any]]:
    shared: dict[str, Any] = {"name": VOLUME, "mountPath": WORKSPACE_PATH}
    if workspace.claim:
        shared["subPath"] = workspace.folder
    return ([shared] if workspace.is_needed else []) + [
        claim_mount(path, *claim_of(uri)) for path, uri in workspace.mounted.items()
    ]
