"""Upstream's mounts in the pods of an MPI job, and the certificate with which programs report progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfjob_controller.api.kubeflowtrainer.runtime import LAUNCHER, NODE
from tfjob_controller.jobs.frameworks import mpi
from tfjob_controller.jobs.frameworks.base import Setting
from tfjob_controller.jobs.plan.model import GeneratedSecret, PodMounts
from tfjob_controller.jobs.podtemplate.merge import (
    Part,
    container_of,
    spec_of,
    with_container,
    with_mounts,
    with_spec,
    with_volumes,
)
from tfjob_controller.jobs.podtemplate.progressreport import files_digest, mounted_files
from tfjob_controller.kinds.kubeflowtrainer.recipe import KubeflowRecipe

_SSH_SUFFIX, _SSH_VOLUME, _SSH_PATH = "-mpi-ssh-auth", "mpi-ssh-auth", "/root/.ssh"
_SSH_TYPE = "kubernetes.io/ssh-auth"
_HOSTS_SUFFIX, _HOSTS_VOLUME, _HOSTS_PATH = "-mpi-hostfile", "mpi-hostfile", "/etc/mpi"
_CA_SUFFIX = "-tls-config"
# The hosts that the launcher waits for, which are those of the hostfile without its own.
_AWAITED = "await-hosts"
_SSH_KEYS = (
    {"key": mpi.PRIVATE_KEY, "path": "id_rsa", "mode": 0o640},
    {"key": mpi.PUBLIC_KEY, "path": "id_rsa.pub", "mode": 0o644},
    {"key": mpi.PUBLIC_KEY, "path": "authorized_keys", "mode": 0o644},
)


def mounts_of(recipe: KubeflowRecipe, setting: Setting) -> PodMounts:
    """Returns the files and the Secret that pods mount. The name of the ConfigMap depends on its content."""
    policy = recipe.runtime.ml_policy.mpi
    if policy is None:
        files = mounted_files({}, recipe.progress_server)
        return PodMounts(f"{recipe.name}{_CA_SUFFIX}-{files_digest(files)}", files) if files else PodMounts()
    hosts = {NODE: setting.nodes, LAUNCHER: (recipe.host(LAUNCHER, 0),) if policy.run_launcher_as_node else ()}
    lines = [f"{host} slots={mpi.slots(setting)}\n" for job in recipe.jobs for host in hosts.get(job.name, ())]
    files = mounted_files(
        {
            mpi.HOSTFILE: "".join(lines),
            _AWAITED: "".join(f"{host}\n" for host in setting.nodes),
            mpi.AWAIT_NODES: mpi.await_nodes_script(f"{_HOSTS_PATH}/{_AWAITED}"),
        },
        recipe.progress_server,
    )
    make = mpi.FRAMEWORK.secret(setting)
    keys = (mpi.PRIVATE_KEY, mpi.PUBLIC_KEY)

    def secret() -> Mapping[str, bytes]:
        data = make() if make is not None else {}
        return {name: data[name] for name in keys}

    return PodMounts(
        f"{recipe.name}{_HOSTS_SUFFIX}-{files_digest(files)}",
        files,
        GeneratedSecret(f"{recipe.name}{_SSH_SUFFIX}", _SSH_TYPE, secret),
    )


def with_ssh(recipe: KubeflowRecipe, template: dict[str, Any], job: str, mounts: PodMounts) -> dict[str, Any]:
    """Returns the template with the keys, and for the launcher the hostfile and the wait for the nodes."""
    policy = recipe.runtime.ml_policy.mpi
    path = (policy.ssh_auth_mount_path if policy is not None else "") or _SSH_PATH
    secret = {"secretName": mounts.secret.name if mounts.secret is not None else "", "defaultMode": 0o400}
    volumes: list[Part] = [{"name": _SSH_VOLUME, "secret": {**secret, "items": list(_SSH_KEYS)}}]
    paths = [{"name": _SSH_VOLUME, "mountPath": path}]
    if job == LAUNCHER:
        volumes.append({"name": _HOSTS_VOLUME, "configMap": {"name": mounts.config_map}})
        paths.append({"name": _HOSTS_VOLUME, "mountPath": _HOSTS_PATH})
    changed = with_container(with_volumes(template, volumes), NODE, lambda container: with_mounts(container, paths))
    if job != LAUNCHER:
        return changed
    container = container_of(spec_of(changed), NODE) or {}
    # The launcher may mount what its ssh needs, such as a configuration or the name of its user.
    mounted = [mount["name"] for mount in container["volumeMounts"]]
    waits = mpi.await_container(container, mounted, f"{_HOSTS_PATH}/{mpi.AWAIT_NODES}")
    waits |= {name: container[name] for name in ("env", "envFrom") if name in container}
    return with_spec(changed, initContainers=[*(spec_of(changed).get("initContainers") or ()), waits])
