"""The environment of the gang demo: a control plane with two simulated nodes of four GPUs each, and all programs.

It does not need root, since no container runs: a fake kubelet (localcluster.fakekubelet) reports pods as
running. kube-apiserver, both kube-schedulers, the Job controller, the TFJob controller and the gang scheduler are real.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from demo.ownstage import OwnStage, Setting, open_own_stage
from demo.screen import Screen
from localcluster.fakekubelet import FakeKubelet

NODES = ("node-1", "node-2")
GPUS_PER_NODE = 4
GPU = "nvidia.com/gpu"
_RESOURCES = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "110", GPU: str(GPUS_PER_NODE)}
# The limit interleaves the pods of two jobs that are created at the same time: on a real cluster the default limits of
# the Job controller have this effect.
_SETTING = Setting("demo-gang", controller=("--concurrent-writes=1",))


def open_gang_stage(screen: Screen) -> AbstractContextManager[OwnStage]:
    """Starts everything. Raises `DemoError` in one line if something is missing."""
    cluster = f"a control plane, and {len(NODES)} simulated nodes with {GPUS_PER_NODE} GPUs each"
    return open_own_stage(screen, _SETTING, cluster, lambda api: FakeKubelet(api, nodes=NODES, resources=_RESOURCES))
