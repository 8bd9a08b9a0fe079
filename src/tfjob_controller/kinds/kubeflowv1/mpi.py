"""What an MPIJob has beside its pods: objects and additions to templates, by which mpirun starts processes in workers.

There is no SSH. mpirun of the launcher calls a script in its place, which runs the command in the worker's pod by
`kubectl exec`. An init container puts kubectl into a volume of the launcher, whose ServiceAccount has the right to do
this for the workers of its own job.

    /etc/mpi    kubexec.sh, hostfile, discover_hosts.sh: the ConfigMap `<job>-config` (`mpi-job-config`)
    /opt/kube   kubectl (`mpi-job-kubectl`)

discover_hosts.sh lists the workers that run now, for elastic Horovod, so the ConfigMap changes as they start and end.
All functions are pure and take jobs with their defaults.

Source: kubeflow/trainer release-1.9 pkg/controller.v1/mpi.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any

from tfjob_controller.api.common.core import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from tfjob_controller.api.common.podtemplates import containers_of
from tfjob_controller.api.kubeflowv1.types import LAUNCHER, WORKER, V1Job
from tfjob_controller.jobs.plan.model import PlannedObject
from tfjob_controller.jobs.podtemplate.merge import Part, spec_of, with_spec

# Upstream's. Any image will do that copies kubectl into the folder $TARGET_DIR.
DEFAULT_KUBECTL_IMAGE = "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"
INIT_CONTAINER = "kubectl-delivery"

_CONFIG_VOLUME, _CONFIG_PATH = "mpi-job-config", "/etc/mpi"
_KUBECTL_VOLUME, _KUBECTL_PATH = "mpi-job-kubectl", "/opt/kube"
_KUBEXEC, _HOSTFILE, _DISCOVER_HOSTS = "kubexec.sh", "hostfile", "discover_hosts.sh"
_SCRIPT_MODE, _FILE_MODE = 0o555, 0o444
_DELIVERY_RESOURCES = {"cpu": "100m", "ephemeral-storage": "5Gi", "memory": "512Mi"}
_NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
# Variables of Intel MPI, which the user may set as well.
_INTEL = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": f"{_CONFIG_PATH}/{_KUBEXEC}"}

_CONFIG_MOUNT = {"name": _CONFIG_VOLUME, "mountPath": _CONFIG_PATH}
_KUBECTL_MOUNT = {"name": _KUBECTL_VOLUME, "mountPath": _KUBECTL_PATH}


def launcher_name(job_name: str) -> str:
    """Returns the name of the launcher, and of the objects that give it its rights."""
    return f"{job_name}-launcher"


def training_container(template: Mapping[str, Any]) -> str:
    """Returns the name of the container whose end is the end of its pod; its name is the user's choice."""
    return str(containers_of(template)[0]["name"])


def objects_of(job: V1Job) -> tuple[PlannedObject, ...]:
    """Returns the objects without which the launcher reaches no worker."""
    name, given_account = launcher_name(job.metadata.name), _given_account(job)
    account = PlannedObject(SERVICE_ACCOUNTS, name, lambda running: {}, _labels(job))
    return (
        PlannedObject(
            CONFIG_MAPS,
            _config_name(job),
            lambda running: {"data": _files(job, running)},
            _labels(job),
            is_updated=True,
        ),
        *(() if given_account else (account,)),
        PlannedObject(ROLES, name, lambda running: {"rules": _rules(job)}, _labels(job), is_updated=True),
        PlannedObject(
            ROLE_BINDINGS,
            name,
            lambda running: _binding(job, given_account or name),
            _labels(job),
            # The API server looks up the rights that a binding gives.
            refers=True,
        ),
    )


def variables(job: V1Job, replica_type: str) -> Mapping[str, str]:
    """Returns the variables that the first container of a replica gets."""
    if replica_type != LAUNCHER:
        return {}
    template = job.spec.replica_specs[LAUNCHER].template
    given = {variable.get("name") for variable in containers_of(template)[0].get("env") or ()}
    return {
        "OMPI_MCA_plm_rsh_agent": f"{_CONFIG_PATH}/{_KUBEXEC}",
        "OMPI_MCA_orte_default_hostfile": f"{_CONFIG_PATH}/{_HOSTFILE}",
        # Otherwise a device plugin's runtime might give all GPUs of the node to it.
        **({} if _has_gpu(job) else _NO_GPUS),
        **{name: value for name, value in _INTEL.items() if name not in given},
    }


def equipped(job: V1Job, replica_type: str, template: Part, kubectl_image: str) -> dict[str, Any]:
    """Returns the template with volumes and mounts; that of the launcher also with kubectl and its account."""
    spec = spec_of(template)
    first, *others = containers_of(template)
    if replica_type != LAUNCHER:
        # A worker waits for the commands of the launcher.
        program = {} if first.get("command") else {"command": ["sleep"], "args": ["365d"]}
        # Open MPI checks in each rank whether its agent exists.
        worker = _with_mounts({**first, **program}, _CONFIG_MOUNT)
        return with_spec(
            template,
            containers=[worker, *others],
            volumes=[*(spec.get("volumes") or ()), _config_volume(job, {_KUBEXEC: _SCRIPT_MODE})],
        )
    files = {_KUBEXEC: _SCRIPT_MODE, _HOSTFILE: _FILE_MODE, _DISCOVER_HOSTS: _SCRIPT_MODE}
    return with_spec(
        template,
        serviceAccountName=_given_account(job) or launcher_name(job.metadata.name),
        initContainers=[*(spec.get("initContainers") or ()), _delivery(job, kubectl_image)],
        containers=[_with_mounts(first, _KUBECTL_MOUNT, _CONFIG_MOUNT), *others],
        volumes=[
            *(spec.get("volumes") or ()),
            {"name": _KUBECTL_VOLUME, "emptyDir": {}},
            _config_volume(job, files),
        ],
    )


def _config_name(job: V1Job) -> str:
    return f"{job.metadata.name}-config"


def _labels(job: V1Job) -> Mapping[str, str]:
    # Upstream's only one.
    return {"app": job.metadata.name}


def _given_account(job: V1Job) -> str:
    return str(spec_of(job.spec.replica_specs[LAUNCHER].template).get("serviceAccountName") or "")


def _workers(job: V1Job) -> list[str]:
    entry = job.spec.replica_specs.get(WORKER)
    count = 0 if entry is None else entry.replicas or 0
    return [f"{job.metadata.name}-worker-{index}" for index in range(count)]


def _has_gpu(job: V1Job) -> bool:
    """Reports whether the launcher computes as well: whether any of its containers has a limit for GPUs."""
    for container in containers_of(job.spec.replica_specs[LAUNCHER].template):
        if any("gpu" in str(name) for name in (container.get("resources") or {}).get("limits") or ()):
            return True
    return False


# Objects


def _files(job: V1Job, running: Collection[str]) -> Mapping[str, str]:
    slots = 1 if job.spec.slots_per_worker is None else job.spec.slots_per_worker
    own = [launcher_name(job.metadata.name)] if _has_gpu(job) else []
    workers = _workers(job)
    hosts = [*own, *sorted(set(workers) & set(running))]
    return {
        _HOSTFILE: "".join(f"{host} slots={slots}\n" for host in (*own, *workers)),
        _KUBEXEC: _kubexec(job.spec.main_container),
        _DISCOVER_HOSTS: "#!/bin/sh\n" + "".join(f"echo {host}:{slots}\n" for host in hosts),
    }


def _kubexec(container: str) -> str:
    """Returns the script that mpirun calls with a host and a command."""
    option = f" --container {shlex.quote(container)}" if container else ""
    return f"""\
#!/bin/sh
# Runs a command in the pod of a worker: kubexec.sh POD COMMAND...
pod=$1
shift
exec {_KUBECTL_PATH}/kubectl exec "$pod"{option} -- /bin/sh -c "$*"
"""


def _rules(job: V1Job) -> list[Mapping[str, Any]]:
    rules: list[Mapping[str, Any]] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    if workers := _workers(job):
        # Without names this would be the right for all pods.
        rules.append({"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"], "resourceNames": workers})
    return rules


def _binding(job: V1Job, account: str) -> Mapping[str, Any]:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": job.metadata.namespace}
    role = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": launcher_name(job.metadata.name)}
    return {"subjects": [subject], "roleRef": role}


# Pods


def _with_mounts(container: Part, *mounts: Part) -> dict[str, Any]:
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts]}


def _config_volume(job: V1Job, files: Mapping[str, int]) -> Mapping[str, Any]:
    items = [{"key": name, "path": name, "mode": mode} for name, mode in files.items()]
    return {"name": _CONFIG_VOLUME, "configMap": {"name": _config_name(job), "items": items}}


def _delivery(job: V1Job, image: str) -> Mapping[str, Any]:
    return {
        "name": INIT_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "TARGET_DIR", "value": _KUBECTL_PATH},
            {"name": "NAMESPACE", "value": job.metadata.namespace},
        ],
        "volumeMounts": [_KUBECTL_MOUNT, _CONFIG_MOUNT],
        "resources": {"requests": _DELIVERY_RESOURCES, "limits": _DELIVERY_RESOURCES},
    }
