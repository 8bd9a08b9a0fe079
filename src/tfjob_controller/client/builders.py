"""Manifests from a few words. What they give is a plain dict: print it, change it, submit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.kinds import TFJOB, TRAINJOB, JobKind

Manifest: TypeAlias = dict[str, Any]
# Quantities such as {"cpu": 2, "memory": "4Gi"}, asked for and allowed at most.
Resources: TypeAlias = Mapping[str, int | float | str]
# A dict is a Kubernetes variable without its name, such as {"valueFrom": …}.
Environment: TypeAlias = Mapping[str, str | int | float | Mapping[str, Any]]

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
# What the controller gives the containers of a TrainJob, unless its runtime says otherwise; the job has no such field.
TRAINJOB_PULL_POLICY = "IfNotPresent"


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
    namespace: str = "",
    **spec: Any,
) -> Manifest:
    """A TFJob whose master and workers run the same program; its parameter servers run TensorFlow's own server.

    `image_pull_policy` is Always, IfNotPresent or Never; Kubernetes' default is Always for the tag `latest` and for an
    image without a tag. `gang` is True or {"minWorkers": 2}; `autoscaling` is such as {"maxWorkers": 8}. `pod` is what
    else their pods have, such as {"tolerations": […]}. Without a master worker 0 is the chief. Further arguments are
    fields of the spec as they stand in the manifest, such as cleanPodPolicy="None".

    Raises `ClientError` for an unknown pull policy, for a command or arguments that are not a list of strings, and for
    an environment or resources that are no mapping.
    """
    template = _template("tensorflow", image, _pull_policy(image_pull_policy), command, args, resources, env, pod)
    replicas: list[dict[str, Any]] = []
    if master:
        replicas.append({"tfReplicaType": "MASTER", "replicas": 1, "template": template})
    if workers:
        replicas.append({"tfReplicaType": "WORKER", "replicas": workers, "template": template})
    if ps:
        replicas.append({"tfReplicaType": "PS", "replicas": ps})
    found: dict[str, Any] = {"replicaSpecs": replicas}
    if not master:
        found["terminationPolicy"] = {"chief": {"replicaName": "WORKER", "replicaIndex": 0}}
    if gang is not None:
        found["gang"] = _gang(gang)
    if autoscaling is not None:
        found["autoscaling"] = dict(autoscaling)
    return _manifest(TFJOB, name, namespace, {**found, **spec})


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
    namespace: str = "",
    **spec: Any,
) -> Manifest:
    """A TrainJob. What is left out is the runtime's.

    `image_pull_policy` may be IfNotPresent, which TrainJobs have unless their runtime says otherwise. `runtime` is the
    name of a ClusterTrainingRuntime, or a mapping such as {"kind": "TrainingRuntime", "name": "ours"}. `dataset`,
    `model` (to begin with) and `output` are URIs such as s3://bucket/path, or mappings with more than that.
    `processes_per_node` is a number, auto, cpu or gpu. Further arguments are fields of the spec as they stand in the
    manifest, such as maxRestarts=3.

    Raises `ClientError` for another pull policy, for a command or arguments that are not a list of strings, and for an
    environment or resources that are no mapping.
    """
    _check_trainjob_pull_policy(image_pull_policy)
    trainer: dict[str, Any] = _given(
        image=image,
        command=_strings("command", command),
        args=_strings("args", args),
        env=_env(env),
        numProcPerNode=processes_per_node,
        resourcesPerNode=_resources(resources),
    )
    found = _given(
        numNodes=nodes,
        framework=framework,
        trainer=trainer,
        runtimeRef={"name": runtime} if runtime and isinstance(runtime, str) else runtime,
        datasetConfig=_storage(dataset),
        modelConfig=_given(input=_storage(model), output=_storage(output)),
    )
    if gang is not None:
        found["gang"] = _gang(gang)
    return _manifest(TRAINJOB, name, namespace, {**found, **spec})


def _manifest(kind: JobKind, name: str, namespace: str, spec: Mapping[str, Any]) -> Manifest:
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": _given(name=name, namespace=namespace),
        "spec": dict(spec),
    }


def _template(
    container: str,
    image: str,
    pull_policy: str | None,
    command: Sequence[str],
    args: Sequence[str],
    resources: Resources | None,
    env: Environment | None,
    pod: Mapping[str, Any] | None,
) -> dict[str, Any]:
    found = _given(
        imagePullPolicy=pull_policy,
        command=_strings("command", command),
        args=_strings("args", args),
        env=_env(env),
        resources=_resources(resources),
    )
    containers = [{"name": container, "image": image, **found}]
    return {"spec": {"restartPolicy": "OnFailure", "containers": containers, **(pod or {})}}


def _given(**fields: Any) -> dict[str, Any]:
    """Those that say something."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {})}


def _pull_policy(value: str | None) -> str | None:
    """The same value. Raises `ClientError` for one that Kubernetes does not know."""
    if value not in (None, *PULL_POLICIES):
        raise ClientError(f"image_pull_policy: must be Always, IfNotPresent or Never, not {value!r}")
    return value


def _check_trainjob_pull_policy(value: str | None) -> None:
    """A TrainJob has no such field. Raises `ClientError` for what the controller would not do."""
    if _pull_policy(value) not in (None, TRAINJOB_PULL_POLICY):
        raise ClientError(
            f"image_pull_policy: cannot be {value} for a TrainJob, whose image is pulled if the node does not have it "
            "(IfNotPresent): set imagePullPolicy in the template of a runtime, and name that runtime in the job"
        )


def _strings(argument: str, values: Sequence[str]) -> list[str]:
    """A copy of the list. Raises `ClientError` for a single string, whose letters would be the elements of the list."""
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
    """The same mapping, empty for None. Raises `ClientError` for anything else."""
    if value is not None and not isinstance(value, Mapping):
        raise ClientError(f"{argument}: must be a mapping such as {example}, not {type(value).__name__}")
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


def _gang(gang: bool | Mapping[str, Any]) -> dict[str, Any]:
    return {"enabled": gang} if isinstance(gang, bool) else {"enabled": True, **gang}


def _storage(place: str | Mapping[str, Any] | None) -> dict[str, Any]:
    return {"storageUri": place} if isinstance(place, str) else dict(place or {})
