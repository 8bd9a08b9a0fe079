"""MPI: a launcher runs `mpirun`, which starts the processes on the nodes through SSH; the nodes run sshd.

Each job has a Secret with one key pair, with which all of its pods can log in to each other: with many nodes, mpirun
starts the processes as a tree. A ConfigMap has the hostfile, the configuration of the SSH client and server, and the
script that waits for the nodes.

    /root/.ssh   id_rsa, id_rsa.pub, authorized_keys and known_hosts from the Secret; config from the ConfigMap
                 (`mpi-ssh-auth`)
    /etc/mpi     hostfile, sshd_config, await-nodes.sh, with-env.sh (`mpi-config`)

If the job's pod template mounts `mpi-ssh-auth`, its path is kept: an image with a user other than root mounts it at
that user's ~/.ssh (with an fsGroup, so that the user can read the key). A node whose template has a command runs it
instead of sshd. It must accept the launcher's logins on SSH_PORT, with the host key ~/.ssh/id_rsa.

Source: mpi-operator and Kubeflow Trainer's plugin mpi, for the names of the Secret's data, of files and variables.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from tfjob_controller.jobs.frameworks.base import (
    AUTO,
    CPU,
    GPU,
    LAUNCHER,
    NODE,
    Setting,
    processes_problem,
    whole_cpus,
)
from tfjob_controller.jobs.podtemplate.merge import (
    Part,
    container_of,
    mount_path,
    with_changed_container,
    with_missing_mounts,
    with_missing_volumes,
)

# Not 22, so that users other than root can listen. Upstream's images use it too.
SSH_PORT = 2222

SSH_VOLUME, SSH_PATH = "mpi-ssh-auth", "/root/.ssh"
CONFIG_VOLUME, CONFIG_PATH = "mpi-config", "/etc/mpi"
PRIVATE_KEY, PUBLIC_KEY, KNOWN_HOSTS = "ssh-privatekey", "ssh-publickey", "ssh-knownhosts"
HOSTFILE, SSH_CONFIG, SSHD_CONFIG, AWAIT_NODES = "hostfile", "ssh_config", "sshd_config", "await-nodes.sh"
WITH_ENV = "with-env.sh"
AWAIT_CONTAINER = "await-nodes"

# Each node's host key is the job's own key, so it is known before the node runs: ~/.ssh/known_hosts has it.
_SSH_CONFIG = f"""\
Host *
  Port {SSH_PORT}
  BatchMode yes
  StrictHostKeyChecking yes
  LogLevel ERROR
"""

# StrictModes would refuse the keys, since the folder of a mounted Secret belongs to root and is writable by all.
_SSHD_CONFIG = f"""\
Port {SSH_PORT}
PidFile none
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
MaxStartups 256
PrintMotd no
ForceCommand sh {CONFIG_PATH}/{WITH_ENV}
"""

# In the pod's memory. Only the user of sshd can read and write it.
_ENV_FILE = "/dev/shm/.mpi-env"  # noqa: S108 - no shared machine's, but the pod's own
# sshd does not pass its environment on, so commands that arrive by SSH get the container's variables from a file.
_WITH_ENV = f"""\
# Runs what came through SSH with the variables that the node's container has.
shell=${{SHELL:-/bin/sh}} folder=$PWD
if [ -r {_ENV_FILE} ]; then . {_ENV_FILE}; fi
export PWD="$folder"
if [ -z "$SSH_ORIGINAL_COMMAND" ]; then exec "$shell" -l; fi
exec "$shell" -c "$SSH_ORIGINAL_COMMAND"
"""


def await_nodes_script(hosts: str) -> str:
    """Returns the script that waits until the launcher can log in to every host; `hosts` is the path of their list."""
    # In sh, since it runs in the user's image. Sixteen nodes at a time: a login takes some tenths of a second.
    return f"""\
# Waits until every node of the hostfile lets the launcher in. Exit code 1: a node refuses the key.
trap 'exit 143' TERM
await() {{
  said=
  until answer=$(ssh -o ConnectTimeout=5 "$1" true 2>&1); do
    case $answer in
      *"Permission denied"*) echo "$1 refuses the launcher: $answer" >&2; exit 1 ;;
    esac
    [ "$answer" = "$said" ] || echo "waiting for $1: $answer"
    said=$answer
    sleep 1
  done
}}
all_of() {{ for pid in "$@"; do wait "$pid" || exit 1; done; }}
pids=
count=0
while read -r host slots; do
  await "$host" </dev/null &
  pids="$pids $!"
  count=$((count + 1))
  if [ $((count % 16)) -eq 0 ]; then all_of $pids; pids=; fi
done <{hosts}
all_of $pids
echo "nodes that answer: $count"
"""


# Passed even if the file of variables cannot be written, so that programs outside the default path can start.
_SET_ENV = '"SetEnv=PATH=$PATH${LD_LIBRARY_PATH:+ LD_LIBRARY_PATH=$LD_LIBRARY_PATH}"'


def slots(setting: Setting) -> int:
    """Returns the number of processes per node."""
    processes = setting.num_proc_per_node
    if processes == CPU:
        return whole_cpus(setting)
    if processes in ("", AUTO, GPU):
        return setting.gpus or 1
    return int(processes)


class _Mpi:
    name = "mpi"
    runtime = "mpi-distributed"
    port = SSH_PORT
    commands = ("mpirun", "mpiexec", "horovodrun")
    has_launcher = True
    reserved = frozenset(
        (
            "OMPI_MCA_orte_default_hostfile",
            "OMPI_MCA_orte_keep_fqdn_hostnames",
            "OMPI_MCA_orte_set_default_slots",
            "OMPI_MCA_plm_rsh_args",
        )
    )

    def problem(self, setting: Setting) -> str | None:
        return processes_problem(setting)

    def environment(self, setting: Setting, role: str, index: str) -> Mapping[str, str]:
        if role != LAUNCHER:
            return {}
        return {
            "OMPI_MCA_orte_default_hostfile": f"{CONFIG_PATH}/{HOSTFILE}",
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_set_default_slots": str(slots(setting)),
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        }

    def files(self, setting: Setting) -> Mapping[str, str]:
        return {
            HOSTFILE: _hostfile(setting),
            SSH_CONFIG: _SSH_CONFIG,
            SSHD_CONFIG: _SSHD_CONFIG,
            AWAIT_NODES: await_nodes_script(f"{CONFIG_PATH}/{HOSTFILE}"),
            WITH_ENV: _WITH_ENV,
        }

    def secret(self, setting: Setting) -> Callable[[], Mapping[str, bytes]] | None:
        return _new_secret_data

    def equip(
        self, setting: Setting, role: str, pod_spec: Mapping[str, Any], *, config_map: str, secret: str
    ) -> dict[str, Any]:
        if role not in (NODE, LAUNCHER):
            return dict(pod_spec)
        equipped = with_missing_volumes(pod_spec, _volumes(config_map, secret))
        equipped = with_changed_container(equipped, role, partial(with_missing_mounts, mounts=_MOUNTS))
        if role == NODE:
            return with_changed_container(equipped, NODE, _with_sshd)
        return _with_await_nodes(equipped)


FRAMEWORK = _Mpi()


def _hostfile(setting: Setting) -> str:
    return "".join(f"{node} slots={slots(setting)}\n" for node in setting.nodes)


def _new_secret_data() -> Mapping[str, bytes]:
    private, public = new_key_pair()
    return {PRIVATE_KEY: private, PUBLIC_KEY: public, KNOWN_HOSTS: b"* " + public}


def _volumes(config_map: str, secret: str) -> tuple[Part, Part]:
    # One folder from two objects: ssh looks for its configuration beside its key.
    keys = [
        {"key": PRIVATE_KEY, "path": "id_rsa", "mode": 0o600},
        {"key": PUBLIC_KEY, "path": "id_rsa.pub"},
        {"key": PUBLIC_KEY, "path": "authorized_keys"},
        {"key": KNOWN_HOSTS, "path": "known_hosts"},
    ]
    sources = [
        {"secret": {"name": secret, "items": keys}},
        {"configMap": {"name": config_map, "items": [{"key": SSH_CONFIG, "path": "config"}]}},
    ]
    return (
        {"name": SSH_VOLUME, "projected": {"defaultMode": 0o644, "sources": sources}},
        {"name": CONFIG_VOLUME, "configMap": {"name": config_map}},
    )


_MOUNTS: tuple[Part, ...] = (
    {"name": SSH_VOLUME, "mountPath": SSH_PATH, "readOnly": True},
    {"name": CONFIG_VOLUME, "mountPath": CONFIG_PATH, "readOnly": True},
)


def _with_sshd(container: Part) -> dict[str, Any]:
    """Returns the container with sshd as its command, unless it has a command or arguments."""
    if container.get("command") or container.get("args"):
        return dict(container)
    return {**container, "command": ["sh", "-c", _sshd_script(mount_path(container, SSH_VOLUME, SSH_PATH))]}


def _sshd_script(ssh_path: str) -> str:
    """Returns a script that starts sshd with the job's key as host key: an image may have none, or a public one."""
    key, authorized = shlex.quote(f"{ssh_path}/id_rsa"), shlex.quote(f"AuthorizedKeysFile={ssh_path}/authorized_keys")
    return (
        # The folder into which sshd of root confines itself. A host creates it at boot.
        "mkdir -p /run/sshd 2>/dev/null\n"
        f"(umask 077 && rm -f {_ENV_FILE} && export -p >{_ENV_FILE}) 2>/dev/null\n"
        'exec "$(command -v sshd || echo /usr/sbin/sshd)" -D -e '
        f"-f {CONFIG_PATH}/{SSHD_CONFIG} -h {key} -o {authorized} -o {_SET_ENV}"
    )


def _with_await_nodes(pod_spec: Part) -> dict[str, Any]:
    """Returns the pod spec with one more init container, which ends once the launcher can log in to every node."""
    launcher = container_of(pod_spec, LAUNCHER)
    if launcher is None:
        return dict(pod_spec)
    return {**pod_spec, "initContainers": [*(pod_spec.get("initContainers") or ()), _await(launcher)]}


def _await(launcher: Part) -> dict[str, Any]:
    return await_container(launcher, (SSH_VOLUME, CONFIG_VOLUME), f"{CONFIG_PATH}/{AWAIT_NODES}")


def await_container(launcher: Part, volumes: Collection[str], script: str) -> dict[str, Any]:
    """Returns an init container that waits for the nodes, with the image, user and resources of the launcher.

    It therefore adds nothing to the requests of the pod. `volumes` are the launcher's volumes that the script needs.
    """
    shared = {
        key: launcher[key] for key in ("image", "imagePullPolicy", "resources", "securityContext") if key in launcher
    }
    mounts = [mount for mount in launcher["volumeMounts"] if mount["name"] in volumes]
    return {"name": AWAIT_CONTAINER, **shared, "command": ["sh", script], "volumeMounts": mounts}


def new_key_pair() -> tuple[bytes, bytes]:
    """Returns the private key as PEM, and the public key as a line of authorized_keys."""
    # Imported here, because it takes some MB of memory, which controllers without MPI jobs do not need.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public + b"\n"
