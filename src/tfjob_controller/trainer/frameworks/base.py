"""The contract of a framework, and what most of them share.

Whoever compiles a TrainJob asks in this order: `problem` (a sentence ends it), then for each pod `environment` and
`equip`, and once for the job `files` (a ConfigMap, if there are any) and `secret` (a Secret, if there is one). What
`environment` says is put into the training container alone, after the user's own variables; that container is the
one that is named like the pod's role. All answers depend on the arguments only, so a job that is looked at again
gets the same ones; the one exception is what the function returned by `secret` makes.

Threads: frameworks are asked by several workers at once and keep nothing between calls but caches.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

# Roles that frameworks are asked about.
NODE, LAUNCHER = "node", "launcher"

# Words for numProcPerNode; anything else is a number. Nothing said means AUTO.
AUTO, CPU, GPU = "auto", "cpu", "gpu"
_COUNT = re.compile(r"[1-9][0-9]{0,3}")
# As in the CRD; no node has more GPUs or CPUs to give.
MAX_PROCESSES = 1024

NUM_PROC_PER_NODE = "spec.trainer.numProcPerNode"
NUM_NODES = "spec.numNodes"

# Where process 0 is asked for; torch's own default, and upstream's for every framework without one of its own.
DEFAULT_PORT = 29500


@dataclass(frozen=True, slots=True)
class Setting:
    """What a framework is told of one job."""

    job_name: str
    num_nodes: int
    # DNS names of the nodes by index: names of headless Services in the job's namespace. The specification's H(i).
    nodes: tuple[str, ...]
    # `auto`, `cpu`, `gpu` or a whole number; empty if nobody says.
    num_proc_per_node: str = ""
    # Per node: GPUs and other accelerators asked for, and CPUs (limits, else requests; 0 if neither is said).
    gpus: int = 0
    cpus: float = 0.0


class Framework(Protocol):
    """How the processes of one framework are told of each other."""

    @property
    def name(self) -> str:
        """What `spec.framework` calls it."""

    @property
    def runtime(self) -> str:
        """The ClusterTrainingRuntime that is used if a job names none."""

    @property
    def port(self) -> int:
        """The port of the nodes' Services; 0 if the nodes need no Service."""

    @property
    def commands(self) -> tuple[str, ...]:
        """First words of a command that choose it, without folders; also modules that `python -m` runs."""

    @property
    def has_launcher(self) -> bool:
        """Does one more pod run the command and start the processes on the nodes? Then its end is the job's end."""

    @property
    def reserved(self) -> frozenset[str]:
        """Every variable that `environment` may ever name. Users may not set them."""

    def problem(self, setting: Setting) -> str | None:
        """Why it cannot run such a job: one sentence that names the field and the remedy. `nodes` may be empty."""

    def environment(self, setting: Setting, role: str, index: int) -> Mapping[str, str]:
        """The variables of one training container. Only asked if there is no problem."""

    def files(self, setting: Setting) -> Mapping[str, str]:
        """The data of a ConfigMap that `equip` mounts; empty if it needs none."""

    def secret(self, setting: Setting) -> Callable[[], Mapping[str, bytes]] | None:
        """What makes the data of a Secret that `equip` mounts, called when there is none yet; None if it needs none."""

    def equip(
        self, setting: Setting, role: str, pod_spec: Mapping[str, Any], *, config_map: str, secret: str
    ) -> dict[str, Any]:
        """The pod spec with what the framework adds: volumes, a command where there is none, init containers.

        `config_map` and `secret` are the names of the objects that `files` and `secret` fill. What the user's pod has
        already stays as it is; `pod_spec` itself is never changed.
        """


def whole_cpus(setting: Setting) -> int:
    """CPUs of a node rounded up, at least 1: how many processes have one of their own."""
    return max(1, math.ceil(setting.cpus))


def processes_problem(setting: Setting) -> str | None:
    """What is wrong with numProcPerNode for a framework that starts several processes per node."""
    wanted = setting.num_proc_per_node
    if wanted == GPU and not setting.gpus:
        return (
            f"{NUM_PROC_PER_NODE}: is gpu, but a node asks for no GPU: "
            "name GPUs in spec.trainer.resourcesPerNode.limits, or say auto, cpu or a number"
        )
    if wanted in ("", AUTO, CPU, GPU) or (_COUNT.fullmatch(wanted) and int(wanted) <= MAX_PROCESSES):
        return None
    return f"{NUM_PROC_PER_NODE}: must be auto, cpu, gpu or a number from 1 to {MAX_PROCESSES}, is {wanted[:64]!r}"


def single_process_problem(name: str, setting: Setting) -> str | None:
    """What is wrong with numProcPerNode for a framework that starts one process per node."""
    if setting.num_proc_per_node in ("", AUTO, "1"):
        return None
    return (
        f"{NUM_PROC_PER_NODE}: framework {name} runs one process per node, "
        f"which {setting.num_proc_per_node[:64]!r} does not say: leave it out, and raise {NUM_NODES} for more"
    )


@dataclass(frozen=True, slots=True)
class ByEnvironment:
    """A framework that needs no more than variables: no launcher, no files, no secret, the pods as they are."""

    name: str
    runtime: str
    reserved: frozenset[str]
    # (setting, index of the node) → its variables.
    variables: Callable[[Setting, int], Mapping[str, str]]
    check: Callable[[Setting], str | None]
    port: int = DEFAULT_PORT
    commands: tuple[str, ...] = ()
    has_launcher: bool = False

    def problem(self, setting: Setting) -> str | None:
        return self.check(setting)

    def environment(self, setting: Setting, role: str, index: int) -> Mapping[str, str]:
        return self.variables(setting, index) if role == NODE else {}

    def files(self, setting: Setting) -> Mapping[str, str]:
        return {}

    def secret(self, setting: Setting) -> Callable[[], Mapping[str, bytes]] | None:
        return None

    def equip(
        self, setting: Setting, role: str, pod_spec: Mapping[str, Any], *, config_map: str, secret: str
    ) -> dict[str, Any]:
        return dict(pod_spec)
