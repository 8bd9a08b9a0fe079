"""The pods of each gang, and the nodes that its status assigns to its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.gang import GangStatus, gang_key_of, placed_nodes
from tfjob_controller.kube.meta import key_of


class GangPods:
    """The pods of each gang, exactly as the view counts them. Guarded by the view's lock.

    The informer's store may be ahead of its handlers, which keep the view current. If the loop took a gang's pods from
    the store, it would miss the capacity of pods that are gone there and that the view still counts, and would request
    it from other gangs.
    """

    def __init__(self) -> None:
        self._by_gang: dict[str, dict[str, ScheduledPod]] = {}

    def set(self, pod: ScheduledPod) -> None:
        """Adds or updates a pod."""
        if gang := gang_key_of(pod.metadata):
            self._by_gang.setdefault(gang, {})[key_of(pod)] = pod

    def remove(self, pod: ScheduledPod) -> None:
        """Removes a pod from the gang that its labels name."""
        gang = gang_key_of(pod.metadata)
        pods = self._by_gang.get(gang, {})
        pods.pop(key_of(pod), None)
        if gang and not pods:
            self._by_gang.pop(gang, None)

    def of(self, gang_key: str) -> Sequence[ScheduledPod]:
        """Returns the pods of a gang, finished ones and those of all attempts included."""
        return tuple(self._by_gang.get(gang_key, {}).values())


class PlacedNodes:
    """The nodes of the members of the status that was asked for last: many are looked up in one after the other.

    Threads: any.
    """

    def __init__(self) -> None:
        self._latest: tuple[GangStatus, dict[str, str]] = (GangStatus(), {})

    def of(self, status: GangStatus) -> Mapping[str, str]:
        """Returns the node of each assigned member."""
        known, nodes = self._latest
        if known is not status:
            nodes = placed_nodes(status)
            self._latest = (status, nodes)
        return nodes
