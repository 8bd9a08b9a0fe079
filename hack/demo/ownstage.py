"""Stages with a stack of their own: a control plane, nodes, and usually all programs of this project.

`own_stage` ends with its block; a guard process ends it if the demo is killed. `kept_stage` stays: the first call fills
it, and later ones find it as it is. Nodes are real, so containers run and root on Linux is needed, or simulated by a
fake kubelet (localcluster.fakekubelet). GPUs are simulated, so that jobs share the same amounts on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from demo.screen import Screen
from demo.stage import (
    NODES,
    Cluster,
    Stage,
    end_command,
    ending,
    load_images,
    prepare_images,
    stage_of,
)
from localcluster import images, ports, process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.extender import extender_beside
from localcluster.fakekubelet import FakeKubelet
from localcluster.gangscheduler import GangScheduler
from localcluster.ourprogram import EXTENDER, PROBES, OurProgram

_SIMULATED = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "110"}


def is_running(name: str) -> bool:
    return state.condition(state.read(state.stack_dir(name))) is state.Condition.RUNNING


@contextmanager
def own_stage(screen: Screen, cluster: Cluster) -> Iterator[Stage]:
    """Yields a stage with CRDs, controller and gang scheduler. Raises LocalClusterError."""
    folder = state.stack_dir(cluster.name)
    if is_running(cluster.name):
        raise LocalClusterError(f"another such demo is running: wait until it ends, or run {end_command(folder)}")
    screen.step(cluster.title)
    if not cluster.is_simulated:
        prepare_images(screen, cluster)

    def stop() -> None:
        screen.step("stopping everything")
        stack.down(folder, lambda _: None)

    with ending(stop):
        node_count = 0 if cluster.is_simulated else NODES
        plane = stack.up(folder, node_count, owner=process.myself(), report=screen.detail)
        stage = stage_of(screen, plane.kubeconfig, folder)
        with equipped(stage.api, cluster):
            stage.install_crds()
            start_programs(plane, screen, cluster)
            yield stage


def kept_stage(screen: Screen, cluster: Cluster, fill: Callable[[ControlPlane, Stage], object]) -> Stage:
    """Returns the stage. `fill` installs programs and creates jobs; if it fails, nothing that was started remains."""
    folder = state.stack_dir(cluster.name)
    if is_running(cluster.name):
        screen.step(f"a control plane, {NODES} nodes and their jobs, which are there already")
        return stage_of(screen, stack.up(folder, NODES, report=screen.detail).kubeconfig, folder)
    screen.step(cluster.title)
    prepare_images(screen, cluster)
    with ending(lambda: stack.down(folder, lambda _: None), stays=True):
        plane = stack.up(folder, NODES, report=screen.detail)
        load_images(folder, screen, cluster.images)
        stage = stage_of(screen, plane.kubeconfig, folder)
        with equipped(stage.api, cluster):
            stage.install_crds()
            stage.install_runtimes()
            fill(plane, stage)
    return stage


def equipped(api: Api, cluster: Cluster) -> AbstractContextManager[object]:
    """Adds GPUs to the real nodes, or simulates nodes with GPUs until the end of the block."""
    amounts = {cluster.gpu: str(cluster.gpus_per_node)}
    if cluster.is_simulated:
        names = [f"node-{number}" for number in range(1, NODES + 1)]
        return FakeKubelet(api, nodes=names, resources={**_SIMULATED, **amounts})
    # A kubelet keeps unknown resources in its node's capacity.
    for node in api.list("/api/v1/nodes"):
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        api.patch(f"/api/v1/nodes/{node['metadata']['name']}/status", status)
    return nullcontext()


def start_programs(plane: ControlPlane, screen: Screen, cluster: Cluster) -> None:
    """Starts the controller, and the gang scheduler with its kube-scheduler; they end with the stack."""
    with ports.reserve(3) as (controller_probes, extender_port, extender_probes):
        screen.step(" ".join(["tfjob-controller run", *cluster.controller]))
        flags = [*cluster.controller, *_local_initializer(plane.folder, cluster)]
        log = plane.logs / "tfjob-controller.log"
        served = {PROBES: controller_probes}
        controller = OurProgram("run", plane.kubeconfig, served, *flags, log=log, mark=plane.folder)
        command = " ".join(["tfjob-controller extender", *cluster.extender])
        screen.step(f"{command}, and a second, unmodified kube-scheduler beside it")
        screen.detail(f"logs: {plane.logs}")
        extender = extender_beside(plane, extender_port, extender_probes, *cluster.extender)
        for program in (controller, extender):
            program.start()
            program.wait_ready()
        GangScheduler(plane, extender.urls[EXTENDER]).start()


def _local_initializer(folder: Path, cluster: Cluster) -> list[str]:
    """Returns the flag with which the controller uses the initializer's image of the nodes, if the cluster has it."""
    if images.INITIALIZER not in cluster.images:
        return []
    config = folder / "controller-config.yaml"
    config.write_text(f"initializerImage: {images.INITIALIZER}\n")
    return [f"--controller-config-file={config}"]
