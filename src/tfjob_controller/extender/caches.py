"""The gang scheduler's view of the cluster: nodes, pods that take or want room, and Gangs.

Finished pods are in the cache too: a member that succeeded gives its room away for good, while that of one which failed
is kept for its replacement, and a watch that left finished pods out would not tell which.
"""

from __future__ import annotations

from collections.abc import Iterable

from tfjob_controller.api.cluster import NODES, Node, ScheduledPod, decode_node, decode_scheduled_pod
from tfjob_controller.api.core import PODS
from tfjob_controller.api.gang import GANG_LABEL, GANGS, Gang, decode_gang
from tfjob_controller.kube.cache.informer import Informer, InformerGroup
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock

# The index over pods by the key of their Gang.
BY_GANG = "gang"


def gang_key_of(pod: ScheduledPod) -> str:
    """namespace/name of the Gang that a pod says it belongs to; empty for all others."""
    name = pod.metadata.labels.get(GANG_LABEL, "")
    return f"{pod.metadata.namespace}/{name}" if name else ""


def by_gang(pod: ScheduledPod) -> Iterable[str]:
    """Index function."""
    key = gang_key_of(pod)
    return (key,) if key else ()


class Caches:
    """Three informers."""

    def __init__(self, requester: Requester, clock: Clock) -> None:
        self.nodes: Informer[Node] = Informer(requester, NODES, decode_node, clock=clock)
        self.pods: Informer[ScheduledPod] = Informer(
            requester, PODS, decode_scheduled_pod, indexers={BY_GANG: by_gang}, clock=clock
        )
        self.gangs: Informer[Gang] = Informer(requester, GANGS, decode_gang, clock=clock)
        self.informers = InformerGroup([self.nodes, self.pods, self.gangs], clock)
