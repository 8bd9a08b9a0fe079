"""The elastic gangs that are bound, as Gangs and pods say: what the rules of scaling are told (scheduling/scaling).

Theory of operation. A gang is looked at when it or one of its pods has changed (`see`), and what follows is kept until
it is looked at again; so a pass in which the rules are asked does not go through all gangs and pods. Nothing is known
here that could not be read again after a restart.

Room is *ending* which pods take that are on their way out: those that were told to end, and those of members that a
gang has no more and whose owner will delete them in a moment. Who is not gone long after that may never go, and counts
for nothing.

Threads: the admission loop's, under its lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tfjob_controller.api.cluster import ScheduledPod
from tfjob_controller.api.gang import BOUND, MEMBER_LABEL, Gang, kind_of, placed_nodes, wanted_members
from tfjob_controller.extender import lifecycle
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.elastic import Elastic, elastic_kind, elastic_of
from tfjob_controller.scheduling.resizes import Ending
from tfjob_controller.scheduling.view import ClusterView
from tfjob_controller.util.timestamps import parse_time_or_none

# How long a pod may take to go once its grace period is over, or an owner to delete it.
PATIENCE_SECONDS = 60.0
# Who was admitted sooner has not waited: somebody has to see the Gang, and to write its status.
_AT_ONCE_SECONDS = 5.0

Pods = Mapping[str, ScheduledPod]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A gang. `unseated`: room of members that it asks for no more, and `left_behind`: of pods that have no seat."""

    elastic: Elastic
    unseated: tuple[Ending, ...]
    left_behind: tuple[Ending, ...]


class ElasticGangs:
    """See the module. `waited_at` is when a gang was admitted last that had had to wait."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._seen: dict[str, _Seen] = {}
        self.waited_at: datetime | None = None

    def see(self, gang: Gang, pods: Pods, all_pods: Iterable[ScheduledPod], has_succeeded: bool, now: datetime) -> None:
        """A gang that is placed. `pods` are those of its attempt, by member; whether some member `has_succeeded`."""
        self._note_wait(gang, now)
        key = key_of(gang)
        self._seen.pop(key, None)
        if gang.status.phase != BOUND or elastic_kind(gang.spec) is None:
            return
        left_behind = _left_behind(gang, all_pods)
        is_finishing = has_succeeded or any(map(lifecycle.has_ended_well, pods.values()))
        is_changing = bool(left_behind) or not all(_is_settled(pods.get(each)) for each in placed_nodes(gang.status))
        elastic = elastic_of(gang, is_finishing=is_finishing, is_changing=is_changing)
        if elastic is not None:
            gone = elastic.nodes.keys() - set(wanted_members(gang))
            # Those that were told to end the view knows.
            staying = [pod for pod in left_behind if pod.metadata.deletion_timestamp is None]
            self._seen[key] = _Seen(
                elastic,
                tuple(_room(member, elastic.nodes[member], elastic) for member in sorted(gone)),
                tuple(_room(pod.metadata.labels.get(MEMBER_LABEL, ""), pod.spec.node_name, elastic) for pod in staying),
            )

    def forget(self, key: str) -> None:
        """It is not bound any more."""
        self._seen.pop(key, None)

    def running(self) -> Sequence[Elastic]:
        """All of them, also those that may not be resized now."""
        return [each.elastic for each in self._seen.values()]

    def is_seen(self, gang: Gang) -> bool:
        """Whether it still asks for what it did when it was seen: the cache goes on while the rules think."""
        seen, member = self._seen.get(key_of(gang)), elastic_kind(gang.spec)
        return seen is not None and member is not None and member.count == seen.elastic.count

    def ending(self, now: datetime) -> tuple[Sequence[Ending], datetime | None]:
        """Room that will come free by itself, and when some of that will be counted on no more."""
        counted = [
            (_end(parse_time_or_none(until), now), Ending(node, amounts))
            for node, amounts, until in self._view.ending()
        ]
        for each in self._seen.values():
            end = _end(each.elastic.last_resize, now)
            counted += [(end, ending) for ending in each.left_behind]
            # Their seats go in this pass; what becomes of their pods is seen then.
            counted += [(now + timedelta(seconds=PATIENCE_SECONDS), ending) for ending in each.unseated]
        left = [(end, ending) for end, ending in counted if end > now]
        return [ending for _, ending in left], min((end for end, _ in left), default=None)

    def _note_wait(self, gang: Gang, now: datetime) -> None:
        admitted, since = parse_time_or_none(gang.status.admitted_time), parse_time_or_none(gang.status.waiting_since)
        if admitted is None or since is None or admitted > now:
            return
        if (admitted - since).total_seconds() >= _AT_ONCE_SECONDS:
            self.waited_at = admitted if self.waited_at is None else max(admitted, self.waited_at)


def _end(moment: datetime | None, now: datetime) -> datetime:
    """Until when room is counted on that was to come free at that moment."""
    if moment is None:
        return now
    try:
        return moment + timedelta(seconds=PATIENCE_SECONDS)
    except OverflowError:
        # Only a hand writes such times.
        return now


def _left_behind(gang: Gang, pods: Iterable[ScheduledPod]) -> list[ScheduledPod]:
    """Pods of members that it has no more."""
    placed = placed_nodes(gang.status)
    return [
        pod
        for pod in pods
        if lifecycle.lives(pod) and lifecycle.is_bound(pod) and pod.metadata.labels.get(MEMBER_LABEL) not in placed
    ]


def _room(member: str, node: str, elastic: Elastic) -> Ending:
    """Only of the kind that is resized; with what its pods have been seen to request (`PodNeeds`)."""
    return Ending(node, dict(elastic.demand.amounts) if kind_of(member) == elastic.kind else {})


def _is_settled(pod: ScheduledPod | None) -> bool:
    """A member's pod is where it is to be, and stays."""
    return pod is not None and lifecycle.is_bound(pod) and pod.metadata.deletion_timestamp is None
