"""Builds manifests from a few arguments. A manifest is a plain dict, which can be printed, changed and submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import LAUNCHER, NODE, TRAINJOBS
from tfjob_controller.client.errors import ClientError
from tfjob_controller.kube.meta import Resource

Manifest: TypeAlias = dict[str, Any]
# Quantities such as {"cpu": 2, "memory": "4Gi"}, for requests and limits.
Resources: TypeAlias = Mapping[str, int | float | str]
# A dict is a Kubernetes variable without its name, such as {"valueFrom": …}.
Environment: TypeAlias = Mapping[str, str | int | float | Mapping[str, Any]]
# Sources of volumes by the path at which they are mounted: {"/data": {"persistentVolumeClaim": {"claimName": "data"}}}.
Volumes: TypeAlias = Mapping[str, Mapping[str, Any]]

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
# The containers of a TrainJob have this policy unless its runtime sets another one; the job has no such field.
_TRAINJOB_PULL_POLICY = "IfNotPresent"


def tfjob(
    name: str,
    *,
    image: str,
    image_pull_policy: str | None = None,
    command: Sequence[str] = (),
    args: Sequence[str] = (),
    workers: int = 0,
    ps: int = 0,
    master: bool = True,
    resources: Resources | None = None,
    env: Environment | None = None,
    gang: bool | Mapping[str, Any] | None = None,
    autoscaling: Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
    volumes: Volumes | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    namespace: str = "",
    **spec: Any,
) -> Manifest:
    """A TFJob whose master and workers run the same program; its parameter servers run TensorFlow's own server.

    `image_pull_policy` is Always, IfNotPresent or Never; Kubernetes' default is Always for the tag `latest` and for an
    image without a tag. `gang` is a bool or a mapping such as {"minWorkers": 2}; `autoscaling` is a mapping such as
    {"maxWorkers": 8}. `pod` has further fields of the pods, such as {"tolerations": […]}, and its containers are added
    to the one that trains; `volumes` are mounted in the master and the workers; `labels` and `annotations` are those of
    the job. Without a master, worker 0 is the chief. Further arguments are fields of the spec by their names in the
    manifest, such as cleanPodPolicy="None", and replace what other arguments have set.

    Raises `ClientError` for an unknown pull policy, for a command or arguments that are not a list of strings, and for
    an environment, resources or volumes that are not a mapping, or have None for a value.
    """
    _check_pull_policy(image_pull_policy)
    mounts, pod = _with_volumes(volumes, pod)
    container = _given(
        imagePullPolicy=image_pull_policy,
        command=_strings("command", command),
        args=_strings("args", args),
        env=_env(env),
        resources=_resources(resources),
        volumeMounts=mounts,
    )
    containers = [{"name": "tensorflow", "image": image, **container}]
    template = {"spec": {"restartPolicy": "OnFailure", **pod, "containers": [*containers, *pod.get("containers", ())]}}
    replicas: list[dict[str, Any]] = []
    if master:
        replicas.append({"tfReplicaType": "MASTER", "replicas": 1, "template": template})
    if workers:
        replicas.append({"tfReplicaType": "WORKER", "replicas": workers, "template": deepcopy(template)})
    if ps:
        replicas.append({"tfReplicaType": "PS", "replicas": ps})
    fields: dict[str, Any] = {"replicaSpecs": replicas}
    if not master:
        fields["terminationPolicy"] = {"chief": {"replicaName": "WORKER", "replicaIndex": 0}}
    fields |= _gang(gang)
    if autoscaling is not None:
        fields["autoscaling"] = dict(autoscaling)
    metadata = _given(name=name, namespace=namespace, labels=labels, annotations=annotations)
    return _manifest(TFJOBS, metadata, {**fields, **spec})


def trainjob(
    name: str,
    *,
    image: str = "",
    image_pull_policy: str | None = None,
    command: Sequence[str] = (),
    args: Sequence[str] = (),
    nodes: int | None = None,
    framework: str | None = None,
    processes_per_node: int | str | None = None,
    resources: Resources | None = None,
    env: Environment | None = None,
    runtime: str | Mapping[str, Any] | None = None,
    dataset: str | Mapping[str, Any] | None = None,
    model: str | Mapping[str, Any] | None = None,
    output: str | Mapping[str, Any] | None = None,
    gang: bool | Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
    volumes: Volumes | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    namespace: str = "",
    **spec: Any,
) -> Manifest:
    """A TrainJob. Its runtime provides what the arguments leave out.

    `image_pull_policy` can be IfNotPresent only, which TrainJobs have unless their runtime sets another one. `runtime`
    names a ClusterTrainingRuntime, or is a mapping such as {"kind": "TrainingRuntime", "name": "ours"}. `dataset`,
    `model` (the initial one) and `output` are URIs such as s3://bucket/path, or mappings with further fields.
    `processes_per_node` is a number, auto, cpu or gpu. `pod` has fields of `podSpecOverrides` for the pods that train,
    such as {"tolerations": […]}, and `volumes` are mounted in these; `labels` and `annotations` are those of the job.
    Further arguments are fields of the spec by their names in the manifest, such as maxRestarts=3.

    Raises `ClientError` for another pull policy, for a command or arguments that are not a list of strings, and for an
    environment, resources or volumes that are not a mapping, or have None for a value.
    """
    _check_pull_policy(image_pull_policy)
    if image_pull_policy not in (None, _TRAINJOB_PULL_POLICY):
        raise ClientError(
            f"image_pull_policy: cannot be {image_pull_policy} for a TrainJob, whose image is pulled if the node does "
            "not have it (IfNotPresent): set imagePullPolicy in the template of a runtime, and name that runtime in "
            "the job"
        )
    trainer: dict[str, Any] = _given(
        image=image,
        command=_strings("command", command),
        args=_strings("args", args),
        env=_env(env),
        numProcPerNode=processes_per_node,
        resourcesPerNode=_resources(resources),
    )
    fields = _given(
        numNodes=nodes,
        framework=framework,
        trainer=trainer,
        runtimeRef={"name": runtime} if runtime and isinstance(runtime, str) else runtime,
        datasetConfig=_storage(dataset),
        modelConfig=_given(input=_storage(model), output=_storage(output)),
    )
    if volumes or pod:
        fields["podSpecOverrides"] = _overrides(_training_roles(framework, command, runtime), volumes, pod)
    metadata = _given(name=name, namespace=namespace, labels=labels, annotations=annotations)
    return _manifest(TRAINJOBS, metadata, {**fields, **_gang(gang), **spec})


def _manifest(resource: Resource[Any], metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Manifest:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": dict(metadata), "spec": dict(spec)}


def _training_roles(framework: str | None, command: Sequence[str], runtime: object) -> Sequence[str]:
    """The roles whose pods train: the nodes, and the launcher if the framework has one.

    For a runtime that does not have a framework's name, this is not known here, and the nodes are assumed.
    """
    # Imported here, since loading the frameworks takes time that other manifests do not need.
    from tfjob_controller.jobs.frameworks.registry import by_command, frameworks

    known = frameworks()
    found = known.get(framework) if framework else by_command(command)
    found = found or next((each for each in known.values() if each.runtime == runtime), None)
    return (NODE, LAUNCHER) if found is not None and found.has_launcher else (NODE,)


def _overrides(
    roles: Sequence[str], volumes: Volumes | None, pod: Mapping[str, Any] | None
) -> Sequence[Mapping[str, Any]]:
    """The same override of the pods of each role, whose container has the role's name."""
    mounts, pod = _with_volumes(volumes, pod)
    extra = pod.get("containers", ())
    return [
        {
            "targetJobs": [{"name": role}],
            **deepcopy(dict(pod)),
            **_given(containers=[*([{"name": role, "volumeMounts": mounts}] if mounts else []), *extra]),
        }
        for role in roles
    ]


def _with_volumes(
    volumes: Volumes | None, pod: Mapping[str, Any] | None
) -> tuple[Sequence[Mapping[str, str]], Mapping[str, Any]]:
    """The mounts of a container, and the fields of its pod with these volumes."""
    checked = _checked_mapping("volumes", volumes, '{"/data": {"persistentVolumeClaim": {"claimName": "data"}}}')
    named = [(f"volume-{number}", path, source) for number, (path, source) in enumerate(checked.items())]
    mounts = [{"name": name, "mountPath": path} for name, path, _ in named]
    fields = dict(pod or {})
    if named:
        fields["volumes"] = [*fields.get("volumes", ()), *({"name": name, **source} for name, _, source in named)]
    return mounts, fields


def _given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value; an empty one counts as none."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {})}


def _check_pull_policy(value: str | None) -> None:
    if value not in (None, *_PULL_POLICIES):
        raise ClientError(f"image_pull_policy: must be Always, IfNotPresent or Never, not {value!r}")


def _strings(argument: str, values: Sequence[str]) -> list[str]:
    """A copy of the list. Raises `ClientError` for a single string, which would be split into its letters."""
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes, bytearray)):
        raise ClientError(
            f'{argument}: must be a list of strings such as ["python", "train.py"], not {type(values).__name__}: '
            "write each word as one element of the list"
        )
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise ClientError(f"{argument}[{index}]: must be a string, not {type(value).__name__}: write str(…)")
    return list(values)


def _checked_mapping(argument: str, value: Mapping[str, Any] | None, example: str) -> Mapping[str, Any]:
    """The same mapping, empty for None. Raises `ClientError` for anything else, and for None as one of its values."""
    if value is not None and not isinstance(value, Mapping):
        raise ClientError(f"{argument}: must be a mapping such as {example}, not {type(value).__name__}")
    for name, each in (value or {}).items():
        if each is None:
            raise ClientError(f"{argument}[{name!r}]: must have a value, not None: give one, or leave {name!r} out")
    return value or {}


def _resources(resources: Resources | None) -> dict[str, Any]:
    checked = _checked_mapping("resources", resources, '{"cpu": 2, "memory": "4Gi"}')
    amounts = {name: each if isinstance(each, int) else str(each) for name, each in checked.items()}
    return {"requests": amounts, "limits": dict(amounts)} if amounts else {}


def _env(env: Environment | None) -> list[dict[str, Any]]:
    return [
        {"name": name, **value} if isinstance(value, Mapping) else {"name": name, "value": str(value)}
        for name, value in _checked_mapping("env", env, '{"NAME": "value"}').items()
    ]


def _gang(gang: bool | Mapping[str, Any] | None) -> dict[str, Any]:
    """The field `gang` of a spec; none for None."""
    if gang is None:
        return {}
    return {"gang": {"enabled": gang} if isinstance(gang, bool) else {"enabled": True, **gang}}


def _storage(place: str | Mapping[str, Any] | None) -> dict[str, Any]:
    return {"storageUri": place} if isinstance(place, str) else dict(place or {})
