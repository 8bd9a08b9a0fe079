"""The contract of a framework, and what most of them share.

The compilation of a TrainJob calls `problem` first (a message ends it), then for each pod `environment` and `equip`,
and once for the job `files` (the data of a ConfigMap) and `secret` (the data of a Secret). The variables of
`environment` are added to the training container, after the user's own; that container has the name of the pod's role.
All results depend on the arguments alone, so that a job which is compiled again gets the same ones. The only exception
is the data that the function returned by `secret` generates.

Threads: several workers call a framework concurrently. It keeps nothing between calls but caches.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

# The roles of pods.
NODE, LAUNCHER = "node", "launcher"

# Values of numProcPerNode beside numbers. An empty value means AUTO.
AUTO, CPU, GPU = "auto", "cpu", "gpu"
_COUNT = re.compile(r"[1-9][0-9]{0,3}")
# As in the CRD; no node has more GPUs or CPUs.
MAX_PROCESSES = 1024

NUM_PROC_PER_NODE = "spec.trainer.numProcPerNode"
NUM_NODES = "spec.numNodes"

# The port of process 0: torch's default, and upstream's for every framework without one of its own.
DEFAULT_PORT = 29500


@dataclass(frozen=True, slots=True)
class ElasticSetting:
    """The properties of a job whose number of nodes may change while it runs."""

    min_nodes: int
    max_nodes: int
    job_uid: str
    # The host name of node 0. All nodes resolve it, node 0 without asking the cluster's DNS.
    first_host: str


@dataclass(frozen=True, slots=True)
class Setting:
    """The properties of one job that a framework may use."""

    job_name: str
    num_nodes: int
    # DNS names of the nodes by index, valid in the job's namespace.
    nodes: tuple[str, ...]
    # `auto`, `cpu`, `gpu` or a whole number; empty if not set.
    num_proc_per_node: str = ""
    # Per node: GPUs and other accelerators, and CPUs (by limits, else by requests; 0 if neither is set).
    gpus: int = 0
    cpus: float = 0.0
    # The resources that `gpus` counts, such as `nvidia.com/gpu` and `nvidia.com/mig-1g.5gb`.
    accelerators: tuple[str, ...] = ()
    # None for a job whose number of nodes is fixed. Otherwise no answer may depend on that number, since all pods keep
    # the template that they were created with. Only the framework torch gets such jobs.
    elastic: ElasticSetting | None = None


class Framework(Protocol):
    """How the processes of one framework find each other."""

    @property
    def name(self) -> str:
        """The value of `spec.framework`."""

    @property
    def runtime(self) -> str:
        """The ClusterTrainingRuntime of jobs that reference none."""

    @property
    def port(self) -> int:
        """The port of the nodes' Services; 0 if the nodes need no Service."""

    @property
    def commands(self) -> tuple[str, ...]:
        """Programs that select this framework for a job's command; also modules that `python -m` runs."""

    @property
    def has_launcher(self) -> bool:
        """Whether another pod runs the command and starts the processes on the nodes. Its end is the job's end."""

    @property
    def reserved(self) -> frozenset[str]:
        """Every variable that `environment` may ever set for jobs that are not elastic. Users may not set them."""

    def problem(self, setting: Setting) -> str | None:
        """Why such a job cannot run: one sentence that names the field and the remedy. `nodes` may be empty."""

    def environment(self, setting: Setting, role: str, index: str) -> Mapping[str, str]:
        """The variables of the training containers of a role. Called only if there is no problem.

        All nodes have one pod template, so `index` is a reference that Kubernetes replaces by the node's index:
        `$(JOB_COMPLETION_INDEX)`. It may stand anywhere in a value, but nothing can be computed from it.
        """

    def files(self, setting: Setting) -> Mapping[str, str]:
        """The data of the ConfigMap that `equip` mounts; empty if it needs none."""

    def secret(self, setting: Setting) -> Callable[[], Mapping[str, bytes]] | None:
        """A function that generates the data of the Secret that `equip` mounts; None if it needs none.

        Its type is `kubernetes.io/ssh-auth`, and the shipped admission policies allow only keys that begin with `ssh-`.
        """

    def equip(
        self, setting: Setting, role: str, pod_spec: Mapping[str, Any], *, config_map: str, secret: str
    ) -> dict[str, Any]:
        """The pod spec with the framework's additions: volumes, init containers, a default command.

        `config_map` and `secret` are the names of the objects with the data of `files` and `secret`. Fields of the
        user's pod stay as they are; `pod_spec` itself is never changed.
        """


def whole_cpus(setting: Setting) -> int:
    """The CPUs of a node, rounded up and at least 1: the number of processes that have one each."""
    return max(1, math.ceil(setting.cpus))


def processes_problem(setting: Setting) -> str | None:
    """Why numProcPerNode is invalid for a framework that starts several processes per node; None if it is valid."""
    value = setting.num_proc_per_node
    if value == GPU and not setting.gpus:
        return (
            f"{NUM_PROC_PER_NODE}: is gpu, but a node requests no GPU: "
            "set GPUs in spec.trainer.resourcesPerNode.limits, or use auto, cpu or a number"
        )
    if value in ("", AUTO, CPU, GPU) or (_COUNT.fullmatch(value) and int(value) <= MAX_PROCESSES):
        return None
    return f"{NUM_PROC_PER_NODE}: must be auto, cpu, gpu or a number from 1 to {MAX_PROCESSES}, is {value[:64]!r}"


def single_process_problem(name: str, setting: Setting) -> str | None:
    """Why numProcPerNode is invalid for a framework that starts one process per node; None if it is valid."""
    if setting.num_proc_per_node in ("", AUTO, "1"):
        return None
    return (
        f"{NUM_PROC_PER_NODE}: framework {name} runs one process per node, "
        f"not {setting.num_proc_per_node[:64]!r}: leave it out, and raise {NUM_NODES} for more"
    )


@dataclass(frozen=True, slots=True)
class ByEnvironment:
    """A framework that only sets environment variables: no launcher, no files, no secret, unchanged pods."""

    name: str
    runtime: str
    reserved: frozenset[str]
    # Returns the variables of a node, given the setting and the reference to the node's index.
    variables: Callable[[Setting, str], Mapping[str, str]]
    check: Callable[[Setting], str | None]
    port: int = DEFAULT_PORT
    commands: tuple[str, ...] = ()
    has_launcher: bool = False

    def problem(self, setting: Setting) -> str | None:
        return self.check(setting)

    def environment(self, setting: Setting, role: str, index: str) -> Mapping[str, str]:
        return self.variables(setting, index) if role == NODE else {}

    def files(self, setting: Setting) -> Mapping[str, str]:
        return {}

    def secret(self, setting: Setting) -> Callable[[], Mapping[str, bytes]] | None:
        return None

    def equip(
        self, setting: Setting, role: str, pod_spec: Mapping[str, Any], *, config_map: str, secret: str
    ) -> dict[str, Any]:
        return dict(pod_spec)
