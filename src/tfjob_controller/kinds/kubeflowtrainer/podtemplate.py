"""The pod templates of a TrainJob of Kubeflow Trainer: those of its runtime, with the changes of the job.

    runtime's template → runtimePatches → trainer, initializer → labels and names of JobSet

Later ones override earlier ones. Lists are merged by the keys of Kubernetes' strategic merge patch, as upstream does.
Pure: arguments are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tfjob_controller.api.kubeflowtrainer.patches import PodPatch
from tfjob_controller.api.kubeflowtrainer.types import AssetInitializer, KubeflowTrainer
from tfjob_controller.jobs.podtemplate.merge import (
    Part,
    override_items,
    spec_of,
    with_env,
    with_mounts,
    with_spec,
)

STORAGE_URI = "STORAGE_URI"

# Labels and annotations of JobSet that identify what a Job and a pod belong to. Clients find pods by them.
JOBSET_NAME, REPLICATED_JOB = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name"
_REPLICAS, _JOB_INDEX = "jobset.sigs.k8s.io/replicatedjob-replicas", "jobset.sigs.k8s.io/job-index"


def jobset_labels(job_name: str, replicated_job: str) -> dict[str, str]:
    """The labels of a replicated job's Job and pods. JobSet has the same as annotations."""
    return {JOBSET_NAME: job_name, REPLICATED_JOB: replicated_job, _REPLICAS: "1", _JOB_INDEX: "0"}


def merged(first: Part, second: Part) -> dict[str, Any]:
    """The first object with the fields of the second; objects in both are merged, and other values are replaced."""
    both = {
        name: merged(first[name], value)
        if isinstance(value, Mapping) and isinstance(first.get(name), Mapping)
        else value
        for name, value in second.items()
        if value is not None
    }
    return {**first, **both}


def patched(template: Part, patch: PodPatch) -> dict[str, Any]:
    """The pod template with a job's changes."""
    spec, changes = spec_of(template), patch.spec
    lists = {
        name: override_items(spec.get(name), changes.get(name))
        for name in ("volumes", "imagePullSecrets", "schedulingGates")
    }
    containers = {
        name: _containers(spec.get(name), (*(changes.get("containers") or ()), *(changes.get("initContainers") or ())))
        for name in ("containers", "initContainers")
    }
    others = {name: value for name, value in changes.items() if name not in lists | containers}
    changed = with_spec({**template, "spec": merged(spec, others)}, **lists, **containers)
    return {**changed, "metadata": merged(template.get("metadata") or {}, patch.metadata)}


def _containers(present: Iterable[Part] | None, patches: Iterable[Part]) -> list[Part]:
    containers = list(present or ())
    for patch in patches:
        containers = [
            _container(container, patch) if container.get("name") == patch["name"] else container
            for container in containers
        ]
    return containers


def _container(container: Part, patch: Part) -> dict[str, Any]:
    changed = with_mounts(with_env(container, patch.get("env") or ()), patch.get("volumeMounts") or ())
    security = patch.get("securityContext")
    return (
        {**changed, "securityContext": merged(changed.get("securityContext") or {}, security)} if security else changed
    )


def trained(container: Part, trainer: KubeflowTrainer, *, runs_command: bool) -> dict[str, Any]:
    """The training container with the job's values. With MPI only the launcher runs the command."""
    changed = with_env(container, trainer.env)
    if runs_command:
        given = {"image": trainer.image, "command": trainer.command, "args": trainer.args}
        changed |= {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in given.items()
            if value is not None
        }
    return changed


def with_resources(container: Part, trainer: KubeflowTrainer) -> dict[str, Any]:
    """The container with the resources that the job requests for each node, which override the runtime's by name."""
    wanted = trainer.resources_per_node
    if wanted is None:
        return dict(container)
    own = container.get("resources") or {}
    given = {"requests": wanted.requests, "limits": wanted.limits}
    resources = {**own, **{name: {**(own.get(name) or {}), **amounts} for name, amounts in given.items() if amounts}}
    if wanted.claims:
        resources["claims"] = override_items(own.get("claims"), wanted.claims)
    return {**container, "resources": resources}


def initialized(container: Part, asset: AssetInitializer | None) -> dict[str, Any]:
    """An initializer's container with what it fetches."""
    if asset is None:
        return dict(container)
    uri = [{"name": STORAGE_URI, "value": asset.storage_uri}] if asset.storage_uri is not None else []
    changed = with_env(with_env(container, uri), asset.env)
    if asset.secret_ref is not None:
        secret = {"secretRef": {"name": asset.secret_ref.name}}
        changed["envFrom"] = [*(container.get("envFrom") or ()), secret]
    return changed


def labeled(template: Part, labels: Mapping[str, str], subdomain: str) -> dict[str, Any]:
    """The template of a pod that JobSet's clients find, with a DNS name in the Service of that name."""
    metadata = template.get("metadata") or {}
    changed = {name: {**(metadata.get(name) or {}), **labels} for name in ("labels", "annotations")}
    return {**template, "metadata": {**metadata, **changed}, "spec": {**spec_of(template), "subdomain": subdomain}}
