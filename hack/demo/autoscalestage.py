"""The environment of the demos of autoscaling and preemption: a control plane, two real nodes, and all programs of this
project.

Containers run, so it needs root on Linux, as `make demo` does. To be the same on every machine, the jobs share
simulated GPUs (an extended resource) and not processors.

Everything ends with the block; a guard process ends it if the demo is killed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.crds import apply_crds
from demo.follow import DemoError
from demo.gangstage import SERVING, start_program, stopping
from demo.kubectl import Kubectl
from demo.screen import Screen
from demo.stage import with_local_initializer
from localcluster import binaries, images, nodes, ports, process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.gangscheduler import GangScheduler

NAME = "demo-autoscale"
NAMESPACE = "default"
NODES = 2
GPU = "example.com/gpu"
GPUS_PER_NODE = 2
# The defaults of 30 s and 60 s are too long for a demo.
SCALE_DOWN_AFTER = "5s"
SCALE_UP_AFTER = "4s"


@dataclass(frozen=True, slots=True)
class Setting:
    """The name of a demo's cluster, the images on its nodes, and flags of both programs."""

    name: str = NAME
    images: tuple[str, ...] = (images.TENSORFLOW,)
    controller: tuple[str, ...] = ("--autoscaling=on",)
    extender: tuple[str, ...] = (f"--scale-down-after={SCALE_DOWN_AFTER}", f"--scale-up-after={SCALE_UP_AFTER}")


AUTOSCALING = Setting()


@dataclass(frozen=True, slots=True)
class AutoscaleStage:
    kubectl: Kubectl
    api: Api
    logs: Path


@contextmanager
def open_autoscale_stage(root: Path, screen: Screen, setting: Setting = AUTOSCALING) -> Iterator[AutoscaleStage]:
    """Starts everything. Raises `DemoError` in one line if something is missing."""
    folder = state.stack_dir(setting.name)
    if state.condition(state.read(folder)) is state.Condition.RUNNING:
        end = f"make cluster-down NAME={setting.name}"
        raise DemoError(f"another such demo is running: wait until it ends, or run {end}")
    try:
        screen.step(f"a control plane and {NODES} real nodes with {GPUS_PER_NODE} simulated GPUs each")
        # Images are prepared first, so that the nodes start with them.
        nodes.prepare(list(setting.images), screen.detail, screen.console, tools=["kubectl"])
        with stopping(folder, screen):
            plane = stack.up(folder, NODES, owner=process.myself(), report=screen.detail)
            kubectl = Kubectl(binaries.ensure("kubectl", screen.detail), plane.kubeconfig, NAMESPACE)
            screen.detail(apply_crds(kubectl, root).replace("\n", "  "))
            api = Api.from_kubeconfig(plane.kubeconfig)
            give_gpus(api)
            start_programs(plane, screen, setting)
            yield AutoscaleStage(kubectl, api, plane.logs)
    except LocalClusterError as error:
        raise DemoError(str(error)) from error


def give_gpus(api: Api) -> None:
    """Adds simulated GPUs to the nodes; a kubelet keeps unknown resources in its node's capacity."""
    amounts = {GPU: str(GPUS_PER_NODE)}
    for node in api.list("/api/v1/nodes"):
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        api.patch(f"/api/v1/nodes/{node['metadata']['name']}/status", status)


def start_programs(plane: ControlPlane, screen: Screen, setting: Setting = AUTOSCALING) -> None:
    """Starts the controller, and the gang scheduler with its kube-scheduler."""
    with ports.reserve(3) as (controller, extender, health):
        screen.step(f"tfjob-controller run {' '.join(setting.controller)}".rstrip())
        _start(plane, "run", [*setting.controller, *_with_local_initializer(plane, setting)], controller)
        flags = " ".join(setting.extender)
        screen.step(f"tfjob-controller extender {flags}, and a second, unmodified kube-scheduler beside it")
        screen.detail(f"logs: {plane.logs}")
        address = f"127.0.0.1:{extender}"
        _start(plane, "extender", ["--extender-bind-address", address, *setting.extender], health)
        GangScheduler(plane, f"http://{address}").start()


def _with_local_initializer(plane: ControlPlane, setting: Setting) -> list[str]:
    """Pods that fetch or save data use the image that the nodes have."""
    return with_local_initializer(plane.folder) if images.INITIALIZER in setting.images else []


def _start(plane: ControlPlane, command: str, flags: Sequence[str], port: int) -> None:
    start_program(plane, command, [*flags, *SERVING, f"127.0.0.1:{port}"], port)
