"""The pod templates of a TrainJob's roles: the runtime's templates with the overrides of the job."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tfjob_controller.api.common.quantity import CPU, milli_of
from tfjob_controller.api.trainjob.types import ContainerOverride, PodSpecOverride, Trainer, TrainJobSpec
from tfjob_controller.trainer.frameworks.base import NODE
from tfjob_controller.trainer.podtemplate.merge import (
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

_GPU = "/gpu"


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
    return with_container(template, role, lambda each: _trainer(each, spec.trainer, role, runs_command=runs_command))


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
    by_name = {each.name: each for each in overrides}
    return [_with(each, by_name.get(each.get("name", ""))) for each in present or ()]


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


def node_resources(spec: TrainJobSpec, base: Part, accelerators: Collection[str]) -> tuple[int, float]:
    """GPUs (and other accelerators) and CPUs of one node, by its limits or else its requests; 0 if neither is set."""
    container = _with_resources(dict(container_of(spec_of(base), NODE) or {}), spec.trainer)
    resources = container.get("resources") or {}
    amounts: Mapping[str, Any] = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    gpus = sum(_whole(value) for name, value in amounts.items() if name.endswith(_GPU) or name in accelerators)
    return gpus, milli_of(str(amounts.get(CPU, "0"))) / 1000


def _whole(quantity: object) -> int:
    return math.ceil(milli_of(str(quantity)) / 1000)
