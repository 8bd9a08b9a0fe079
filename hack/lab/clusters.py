"""Clusters of a run: a control plane with simulated nodes, or a stack with two real nodes (as root on Linux)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lab.command import progress, wait
from localcluster import nodes, process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.crds import install_crds
from localcluster.errors import LocalClusterError
from localcluster.fakekubelet import Behaviour, FakeKubelet
from localcluster.programs import Options

NODES = 2
_START_TRIES = 5


@contextlib.contextmanager
def fake_cluster(
    name: str, options: Options, node_names: Sequence[str], resources: Mapping[str, str], behaviour: Behaviour
) -> Iterator[tuple[ControlPlane, Api]]:
    """Starts a control plane whose pods end as `behaviour` determines. Raises LocalClusterError."""
    with stack.throwaway(name, options, progress) as plane:
        api = Api.from_kubeconfig(plane.kubeconfig)
        install_crds(api)
        kubelet_api = Api.from_kubeconfig(plane.kubeconfig)
        with FakeKubelet(kubelet_api, nodes=node_names, resources=resources, behaviour=behaviour):
            yield plane, api


@contextlib.contextmanager
def open_nodes(folder: Path, images: Sequence[str], namespace: str) -> Iterator[tuple[ControlPlane, Api]]:
    """Starts a stack with these images, unless it runs, and creates the namespace. Raises LocalClusterError."""
    was_running = state.condition(state.read(folder)) is state.Condition.RUNNING
    nodes.prepare(images, progress)
    with contextlib.ExitStack() as open_:
        if not was_running:
            open_.callback(stack.down, folder, progress)
        owner = None if was_running else process.myself()
        plane = stack.up(folder, NODES, owner=owner, report=progress, unsafe_no_fsync=True)
        for image in images:
            nodes.load_image(folder, image, progress)
        api = Api.from_kubeconfig(plane.kubeconfig, pool_size=32)
        install_crds(api)
        api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        open_.callback(api.delete, f"/api/v1/namespaces/{namespace}")
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait(lambda: api.find(account) is not None, f"{namespace} has no account")
        yield plane, api


def restart_node(folder: Path, number: int, away_seconds: float) -> None:
    """Ends a node as a power failure does, and starts it again later. Raises LocalClusterError."""
    stack.node_kill(folder, number, progress)
    time.sleep(away_seconds)
    for attempt in range(_START_TRIES):
        try:
            stack.node_start(folder, number, progress)
            return
        except LocalClusterError as error:
            progress(f"node {number} did not start: {error}")
            if attempt == _START_TRIES - 1:
                raise
            nodes.kill(folder, number)
