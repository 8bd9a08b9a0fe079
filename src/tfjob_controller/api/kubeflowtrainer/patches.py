"""What a TrainJob changes of its runtime's pod templates, in the form of each of upstream's releases.

    spec.runtimePatches         since 2.2: by author, in the shape of the runtime; later authors win
    spec.podTemplateOverrides   2.1: for some jobs, the metadata and spec of pods
    spec.podSpecOverrides       2.0: for some jobs, the spec of pods

All are turned into `PodPatch`. Only the fields that upstream allows are accepted. All functions are pure.

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
    """Changes of the pods of one replicated job. `at` is the path of the field that has them."""

    at: str
    job: str
    metadata: Part = field(default_factory=dict)
    spec: Part = field(default_factory=dict)
    # Of the Job itself.
    job_metadata: Part = field(default_factory=dict)


def pod_patches(spec: KubeflowTrainJobSpec) -> tuple[PodPatch, ...]:
    """The changes of a job whose patches have no problem, in the order in which they apply."""
    return (
        *(each for patch in spec.runtime_patches for each in _of_runtime(patch.training_runtime_spec, "")),
        *(
            PodPatch("", target.name, override.metadata, override.spec)
            for override in spec.pod_template_overrides
            for target in override.target_jobs
        ),
        *(
            PodPatch("", str(target["name"]), {}, {name: it for name, it in override.items() if name != "targetJobs"})
            for override in spec.pod_spec_overrides
            for target in override["targetJobs"]
        ),
    )


def set_metadata(spec: KubeflowTrainJobSpec, field_name: str) -> dict[str, str]:
    """The labels or annotations that a job adds to all of its Jobs."""
    found: dict[str, str] = dict(getattr(spec, field_name))
    for patch in spec.runtime_patches:
        template: Part = patch.training_runtime_spec.get("template") or {}
        found |= (template.get("metadata") or {}).get(field_name) or {}
    return found


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
    """The problems of a job's changes of its runtime, which has these replicated jobs.

    Only the first problem is meaningful: what follows relies on the shape of what comes before.
    """
    by_name = {job.name: job for job in jobs}
    for index, patch in enumerate(spec.runtime_patches):
        if not _MANAGER.fullmatch(patch.manager):
            yield f"spec.runtimePatches[{index}].manager: must be a domain and a path, such as example.com/team"
        at = f"spec.runtimePatches[{index}].trainingRuntimeSpec"
        yield from _shape_problems(patch.training_runtime_spec, at)
        for each in _of_runtime(patch.training_runtime_spec, at):
            yield from _pod_problems(each, by_name)
    for index, override in enumerate(spec.pod_template_overrides):
        for target in override.target_jobs:
            at = f"spec.podTemplateOverrides[{index}]"
            yield from _pod_problems(PodPatch(at, target.name, override.metadata, override.spec), by_name)
    for index, given in enumerate(spec.pod_spec_overrides):
        at = f"spec.podSpecOverrides[{index}]"
        targets = given.get("targetJobs")
        if not _is_list_of_named(targets):
            yield f"{at}.targetJobs: expected a list of objects with a name"
            continue
        fields = {name: it for name, it in given.items() if name != "targetJobs"}
        for target in targets or ():
            yield from _pod_problems(PodPatch(at, target["name"], {}, fields), by_name)


def _shape_problems(patch: Part, at: str) -> Iterator[str]:
    """The problems of the way from a patch to its pod specs."""
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


def _unknown(given: object, fields: Mapping[str, type], at: str) -> Iterator[str]:
    """The problems of an object that may have these fields of these types."""
    if not isinstance(given, Mapping):
        yield f"{at}: expected an object"
        return
    for name, value in given.items():
        if name not in fields:
            yield f"{at}.{name}: must not be patched: only {', '.join(fields)} may"
        elif not isinstance(value, fields[name] | None):
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
    present = (each for kind in ("initContainers", "containers") for each in pod_spec.get(kind) or ())
    if container["name"] not in [each.get("name") for each in present]:
        yield f"{at}: must not have container that doesn't exist in the runtime job {job.name}"
    if container.get("env") and container["name"] in CONTAINERS.values():
        yield f"{at}.env: must not have envs for the container {container['name']}: use trainer or initializer"
    for field_name, key in (("env", "name"), ("volumeMounts", "mountPath")):
        if not _is_list_of_named(container.get(field_name), key):
            yield f"{at}.{field_name}: expected a list of objects with a {key}"


def _are_objects(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, dict) for each in value))


def _is_list_of_named(value: Any, key: str = "name") -> bool:
    return _are_objects(value) and all(isinstance(each.get(key), str) and each[key] for each in value or ())
