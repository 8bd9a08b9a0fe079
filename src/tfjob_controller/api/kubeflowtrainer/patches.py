"""The changes that a Kubeflow TrainJob makes to the pod templates of its runtime.

Each release of Kubeflow Trainer has a field of its own for them:

    spec.runtimePatches         since 2.2: a list of patches with the structure of a runtime; later ones take precedence
    spec.podTemplateOverrides   2.1: the metadata and the spec of the pods of the replicated jobs that it names
    spec.podSpecOverrides       2.0: the spec of the pods of the replicated jobs that it names

`pod_patches` converts all three into `PodPatch`, and `patch_problems` validates them: a patch may only contain the
fields that upstream allows. All functions are pure.

Source: kubeflow/trainer pkg/apis/trainer/v1alpha1/trainjob_types.go, pkg/runtime/framework/plugins/jobset (Validate).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfjob_controller.api.kubeflowtrainer.runtime import CONTAINERS, ReplicatedJob
from tfjob_controller.api.kubeflowtrainer.types import KubeflowTrainJobSpec

Part = Mapping[str, Any]

_POD_FIELDS: Mapping[str, type] = {
    "serviceAccountName": str,
    "volumes": list,
    "initContainers": list,
    "containers": list,
    "imagePullSecrets": list,
    "securityContext": dict,
    "nodeSelector": dict,
    "affinity": dict,
    "tolerations": list,
    "schedulingGates": list,
    "terminationGracePeriodSeconds": int,
}
_CONTAINER_FIELDS: Mapping[str, type] = {"name": str, "env": list, "volumeMounts": list, "securityContext": dict}
_METADATA_FIELDS: Mapping[str, type] = {"labels": dict, "annotations": dict}
# As IsDomainPrefixedPath of k8s.io/apimachinery pkg/util/validation/field allows it.
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_MANAGER = re.compile(rf"(?=[^/]{{1,253}}/){_LABEL}(\.{_LABEL})*/[-A-Za-z0-9/._~%!$&'()*+,;=:]+")
_NAMED = ("volumes", "initContainers", "containers", "imagePullSecrets", "schedulingGates")


@dataclass(frozen=True, slots=True)
class PodPatch:
    """A patch of the pods of one replicated job. `at` is the path of the field that contains it, for messages."""

    at: str
    job: str
    metadata: Part = field(default_factory=dict)
    spec: Part = field(default_factory=dict)
    # The patch of the metadata of the Job.
    job_metadata: Part = field(default_factory=dict)


def pod_patches(spec: KubeflowTrainJobSpec) -> tuple[PodPatch, ...]:
    """Returns the patches of a valid job, in the order in which they are applied."""
    return (
        *(pods for patch in spec.runtime_patches for pods in _of_runtime(patch.training_runtime_spec, "")),
        *(
            PodPatch("", target.name, override.metadata, override.spec)
            for override in spec.pod_template_overrides
            for target in override.target_jobs
        ),
        *(
            PodPatch(
                "", str(target["name"]), {}, {name: value for name, value in override.items() if name != "targetJobs"}
            )
            for override in spec.pod_spec_overrides
            for target in override["targetJobs"]
        ),
    )


def set_metadata(spec: KubeflowTrainJobSpec, field_name: str) -> dict[str, str]:
    """Returns the labels or annotations that a job adds to all of its Jobs."""
    metadata: dict[str, str] = dict(getattr(spec, field_name))
    for patch in spec.runtime_patches:
        template: Part = patch.training_runtime_spec.get("template") or {}
        metadata |= (template.get("metadata") or {}).get(field_name) or {}
    return metadata


def _of_runtime(runtime: Part, at: str) -> Iterator[PodPatch]:
    jobs = ((runtime.get("template") or {}).get("spec") or {}).get("replicatedJobs") or ()
    for index, job in enumerate(jobs):
        template: Part = job.get("template") or {}
        pods: Part = (template.get("spec") or {}).get("template") or {}
        yield PodPatch(
            f"{at}.template.spec.replicatedJobs[{index}].template",
            job["name"],
            pods.get("metadata") or {},
            pods.get("spec") or {},
            template.get("metadata") or {},
        )


def patch_problems(spec: KubeflowTrainJobSpec, jobs: Iterable[ReplicatedJob]) -> Iterator[str]:
    """Yields the problems of a job's patches, given the replicated jobs of its runtime.

    Only the first one is meaningful: later checks assume that the earlier ones have passed.
    """
    by_name = {job.name: job for job in jobs}
    for index, patch in enumerate(spec.runtime_patches):
        if not _MANAGER.fullmatch(patch.manager):
            yield f"spec.runtimePatches[{index}].manager: must be a domain and a path, such as example.com/team"
        at = f"spec.runtimePatches[{index}].trainingRuntimeSpec"
        yield from _shape_problems(patch.training_runtime_spec, at)
        for pods in _of_runtime(patch.training_runtime_spec, at):
            yield from _pod_problems(pods, by_name)
    for index, override in enumerate(spec.pod_template_overrides):
        for target in override.target_jobs:
            at = f"spec.podTemplateOverrides[{index}]"
            yield from _pod_problems(PodPatch(at, target.name, override.metadata, override.spec), by_name)
    for index, fields in enumerate(spec.pod_spec_overrides):
        at = f"spec.podSpecOverrides[{index}]"
        targets = fields.get("targetJobs")
        if not _is_list_of_named(targets):
            yield f"{at}.targetJobs: expected a list of objects with a name"
            continue
        pod_spec = {name: value for name, value in fields.items() if name != "targetJobs"}
        for target in targets or ():
            yield from _pod_problems(PodPatch(at, target["name"], {}, pod_spec), by_name)


def _shape_problems(patch: Part, at: str) -> Iterator[str]:
    """Yields the problems of the fields that enclose the pod specs of a patch."""
    yield from _unknown(patch, {"template": dict}, at)
    template = patch.get("template") or {}
    yield from _unknown(template, {"metadata": dict, "spec": dict}, f"{at}.template")
    yield from _unknown(template.get("metadata") or {}, _METADATA_FIELDS, f"{at}.template.metadata")
    spec = template.get("spec") or {}
    yield from _unknown(spec, {"replicatedJobs": list}, f"{at}.template.spec")
    jobs = spec.get("replicatedJobs")
    if not _is_list_of_named(jobs):
        yield f"{at}.template.spec.replicatedJobs: expected a list of objects with a name"
        return
    for index, job in enumerate(jobs or ()):
        here = f"{at}.template.spec.replicatedJobs[{index}]"
        yield from _unknown(job, {"name": str, "template": dict}, here)
        of_job = job.get("template") or {}
        yield from _unknown(of_job, {"metadata": dict, "spec": dict}, f"{here}.template")
        yield from _unknown(of_job.get("metadata") or {}, _METADATA_FIELDS, f"{here}.template.metadata")
        yield from _unknown(of_job.get("spec") or {}, {"template": dict}, f"{here}.template.spec")
        pods = (of_job.get("spec") or {}).get("template") or {}
        yield from _unknown(pods, {"metadata": dict, "spec": dict}, f"{here}.template.spec.template")


def _unknown(value: object, fields: Mapping[str, type], at: str) -> Iterator[str]:
    """Yields a problem for each field that is not in `fields` or does not have its type there."""
    if not isinstance(value, Mapping):
        yield f"{at}: expected an object"
        return
    for name, member in value.items():
        if name not in fields:
            yield f"{at}.{name}: must not be patched: only {', '.join(fields)} may"
        elif not isinstance(member, fields[name] | None):
            yield f"{at}.{name}: expected {'a list' if fields[name] is list else 'another type'}"


def _pod_problems(patch: PodPatch, jobs: Mapping[str, ReplicatedJob]) -> Iterator[str]:
    job = jobs.get(patch.job)
    if job is None:
        yield f"{patch.at}: must not have replicated job that doesn't exist in the runtime job template: {patch.job}"
        return
    yield from _unknown(patch.metadata, _METADATA_FIELDS, f"{patch.at}.metadata")
    yield from _unknown(patch.spec, _POD_FIELDS, f"{patch.at}.spec")
    for name in _NAMED:
        if not _is_list_of_named(patch.spec.get(name)):
            yield f"{patch.at}.spec.{name}: expected a list of objects with a name"
    if not _are_objects(patch.spec.get("tolerations")):
        yield f"{patch.at}.spec.tolerations: expected a list of objects"
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(patch.spec.get(kind) or ()):
            yield from _container_problems(container, job, f"{patch.at}.spec.{kind}[{index}]")


def _container_problems(container: Part, job: ReplicatedJob, at: str) -> Iterator[str]:
    yield from _unknown(container, _CONTAINER_FIELDS, at)
    pod_spec = job.template.spec["template"].get("spec") or {}
    # Upstream looks for a container of either kind under both fields.
    existing = [one.get("name") for kind in ("initContainers", "containers") for one in pod_spec.get(kind) or ()]
    if container["name"] not in existing:
        yield f"{at}: must not have container that doesn't exist in the runtime job {job.name}"
    if container.get("env") and container["name"] in CONTAINERS.values():
        yield f"{at}.env: must not have envs for the container {container['name']}: use trainer or initializer"
    for field_name, key in (("env", "name"), ("volumeMounts", "mountPath")):
        if not _is_list_of_named(container.get(field_name), key):
            yield f"{at}.{field_name}: expected a list of objects with a {key}"


def _are_objects(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))


def _is_list_of_named(value: Any, key: str = "name") -> bool:
    return _are_objects(value) and all(isinstance(item.get(key), str) and item[key] for item in value or ())
