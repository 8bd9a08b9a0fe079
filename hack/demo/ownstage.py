"""The environment of a demo that has a cluster of its own: a control plane, nodes, and all programs of this project.

Everything ends with the block; a guard process ends it if the demo is killed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.crds import apply_crds
from demo.follow import DemoError
from demo.kubectl import Kubectl
from demo.ready import wait_ready
from demo.screen import Screen
from demo.stage import with_local_initializer
from demo.steps import ROOT
from localcluster import binaries, images, nodes, ports, process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.gangscheduler import GangScheduler

NAMESPACE = "default"
# Flags of both programs; the address for probes follows.
_SERVING = ("--metrics-bind-address", "0", "--health-probe-bind-address")


@dataclass(frozen=True, slots=True)
class Setting:
    """The name of a demo's cluster, its real nodes with the images on them, and flags of both programs."""

    name: str
    nodes: int = 0
    images: tuple[str, ...] = ()
    controller: tuple[str, ...] = ()
    extender: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnStage:
    kubectl: Kubectl
    api: Api
    logs: Path


@contextmanager
def open_own_stage(
    screen: Screen, setting: Setting, cluster: str, equip: Callable[[Api], AbstractContextManager[object]]
) -> Iterator[OwnStage]:
    """Starts everything. Raises `DemoError` in one line if something is missing.

    `cluster` describes it; `equip` adds nodes, or something to the real ones, until its block ends.
    """
    folder = state.stack_dir(setting.name)
    if state.condition(state.read(folder)) is state.Condition.RUNNING:
        end = f"make cluster-down NAME={setting.name}"
        raise DemoError(f"another such demo is running: wait until it ends, or run {end}")
    try:
        screen.step(cluster)
        if setting.nodes:
            # Images are prepared first, so that the nodes start with them.
            nodes.prepare(list(setting.images), screen.detail, screen.console, tools=["kubectl"])
        with _stopping(folder, screen):
            plane = stack.up(folder, setting.nodes, owner=process.myself(), report=screen.detail)
            api = Api.from_kubeconfig(plane.kubeconfig)
            with equip(api):
                kubectl = Kubectl(binaries.ensure("kubectl", screen.detail), plane.kubeconfig, NAMESPACE)
                screen.detail(apply_crds(kubectl, ROOT).replace("\n", "  "))
                start_programs(plane, screen, setting)
                yield OwnStage(kubectl, api, plane.logs)
    except LocalClusterError as error:
        raise DemoError(str(error)) from error


def start_programs(plane: ControlPlane, screen: Screen, setting: Setting) -> None:
    """Starts the controller, and the gang scheduler with its kube-scheduler."""
    with ports.reserve(3) as (controller, extender, health):
        screen.step(" ".join(["tfjob-controller run", *setting.controller]))
        # Pods that fetch or save data use the image that the nodes have.
        local = with_local_initializer(plane.folder) if images.INITIALIZER in setting.images else []
        _start(plane, "run", [*setting.controller, *local], controller)
        words = " ".join(["tfjob-controller extender", *setting.extender])
        screen.step(f"{words}, and a second, unmodified kube-scheduler beside it")
        screen.detail(f"logs: {plane.logs}")
        address = f"127.0.0.1:{extender}"
        _start(plane, "extender", ["--extender-bind-address", address, *setting.extender], health)
        GangScheduler(plane, f"http://{address}").start()


def _start(plane: ControlPlane, command: str, flags: Sequence[str], port: int) -> None:
    """Starts `tfjob-controller <command>` and waits until it is ready; it ends with the stack whose mark it carries."""
    log, address = plane.logs / f"tfjob-controller-{command}.log", f"127.0.0.1:{port}"
    argv = [sys.executable, "-m", "tfjob_controller", command, "--kubeconfig", str(plane.kubeconfig), *flags]
    identity = process.spawn([*argv, *_SERVING, address], log=log, mark=plane.folder)
    wait_ready(identity, address, f"tfjob-controller {command}", log)


@contextmanager
def _stopping(folder: Path, screen: Screen) -> Iterator[None]:
    """Stops the stack at the end of the block, also after an error."""
    try:
        yield
    finally:
        # A second Ctrl-C must not interrupt the clean-up.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        screen.step("stopping everything")
        stack.down(folder, lambda _: None)
