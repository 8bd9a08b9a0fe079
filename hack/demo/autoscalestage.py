"""The environment of the demos of autoscaling and preemption: a control plane, two real nodes, and all programs of this
project.

Containers run, so it needs root on Linux, as `make demo` does. To be the same on every machine, the jobs share
simulated GPUs (an extended resource) and not processors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from demo.ownstage import OwnStage, Setting, open_own_stage
from demo.screen import Screen
from localcluster import images
from localcluster.api import Api

NAME = "demo-autoscale"
NODES = 2
GPU = "example.com/gpu"
GPUS_PER_NODE = 2
# The defaults of 30 s and 60 s are too long for a demo.
SCALE_DOWN_AFTER = "5s"
SCALE_UP_AFTER = "4s"
AUTOSCALING = Setting(
    name=NAME,
    nodes=NODES,
    images=(images.TENSORFLOW,),
    controller=("--autoscaling=on",),
    extender=(f"--scale-down-after={SCALE_DOWN_AFTER}", f"--scale-up-after={SCALE_UP_AFTER}"),
)


def open_autoscale_stage(screen: Screen, setting: Setting = AUTOSCALING) -> AbstractContextManager[OwnStage]:
    """Starts everything. Raises `DemoError` in one line if something is missing."""
    cluster = f"a control plane and {NODES} real nodes with {GPUS_PER_NODE} simulated GPUs each"
    return open_own_stage(screen, setting, cluster, _with_gpus)


def give_gpus(api: Api) -> None:
    """Adds simulated GPUs to the nodes; a kubelet keeps unknown resources in its node's capacity."""
    amounts = {GPU: str(GPUS_PER_NODE)}
    for node in api.list("/api/v1/nodes"):
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        api.patch(f"/api/v1/nodes/{node['metadata']['name']}/status", status)


@contextmanager
def _with_gpus(api: Api) -> Iterator[None]:
    give_gpus(api)
    yield
