"""The cluster of a demo that stays: the first call prepares it, and later ones find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from demo.autoscalestage import NODES
from demo.screen import Screen
from localcluster import nodes, stack, state
from localcluster.controlplane import ControlPlane


def is_running(name: str) -> bool:
    return state.condition(state.read(state.stack_dir(name))) is state.Condition.RUNNING


def kept_cluster(
    name: str,
    images: Sequence[str],
    screen: Screen,
    fill: Callable[[ControlPlane], object],
    tools: Sequence[str] = ("kubectl",),
) -> ControlPlane:
    """Returns the cluster. `fill` installs programs and creates jobs; if it fails, nothing that was started remains."""
    folder = state.stack_dir(name)
    if is_running(name):
        screen.step(f"a control plane, {NODES} nodes and their jobs, which are there already")
        return stack.up(folder, NODES, report=screen.detail)
    screen.step(f"a control plane and {NODES} real nodes with simulated GPUs")
    # Images are prepared first, so that the nodes start with them.
    nodes.prepare(list(images), screen.detail, screen.console, tools=list(tools))
    try:
        plane = stack.up(folder, NODES, report=screen.detail)
        for image in images:
            nodes.load_image(folder, image, screen.detail)
        fill(plane)
    except BaseException:
        stack.down(folder, lambda _: None)
        raise
    return plane
