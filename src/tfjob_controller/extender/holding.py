"""The room and the seats of placed gangs: view and gate follow what the Gangs say, and what is known beyond that.

Theory of operation. A placed gang has a reservation in the view and a seat at the gate for each member of its placement
but those that have succeeded. Three things are known here that its status does not say, or not yet:

- members that *succeeded*, also once their pods are deleted: their room is not for them any more;
- members that were *moved* by a status which has not been written, or not been read back: they keep their new nodes as
  long as the Gang that is read is the one they were moved from. A write that failed is repeated with the same nodes;
- members that the gang has *no more*, but whose Bindings are under way: room and seat stay until these have ended.

All of it is of one attempt, and lost with the process: then the pods say what happened.

Threads: the admission loop's, under its lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tfjob_controller.api.cluster import ScheduledPod
from tfjob_controller.api.gang import BOUND, Gang, GangSpec, placed_nodes
from tfjob_controller.api.podrequests import Amounts
from tfjob_controller.extender import lifecycle
from tfjob_controller.extender.lifecycle import SUCCEEDED
from tfjob_controller.extender.relocation import other_nodes
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.demand import demands_understood, requests_by_member
from tfjob_controller.scheduling.view import ClusterView

Pods = Mapping[str, ScheduledPod]


class Gate(Protocol):
    """What the loop tells the bind calls' side: `extender.gate.Gate`."""

    def expect(
        self,
        gang: str,
        attempt: int,
        nodes: Mapping[str, str],
        *,
        bound: Mapping[str, str] | None = None,
        was_bound: bool = False,
    ) -> None: ...

    def forget(self, gang: str) -> None: ...
    def wind_up(self, gang: str) -> bool: ...
    def move(self, gang: str, nodes: Mapping[str, str]) -> set[str]: ...


@dataclass(slots=True)
class _Held:
    """One attempt of one gang. `requests` follow from `spec`; `moved` are nodes that the Gang of `version` lacks."""

    attempt: int
    spec: GangSpec | None = None
    requests: Mapping[str, Amounts] = field(default_factory=dict)
    succeeded: set[str] = field(default_factory=set)
    version: str = ""
    moved: dict[str, str] = field(default_factory=dict)


class Holding:
    """See the module."""

    def __init__(self, view: ClusterView, gate: Gate) -> None:
        self._view = view
        self._gate = gate
        self._held: dict[str, _Held] = {}

    def as_moved(self, gang: Gang) -> Gang:
        """The gang with the nodes that it was given since it was written."""
        held = self._held.get(key_of(gang))
        if held is None or held.attempt != gang.status.attempt or held.version != gang.metadata.resource_version:
            return gang
        return lifecycle.with_status(gang, lifecycle.moved(gang, held.moved)) if held.moved else gang

    def hold(self, gang: Gang, pods: Pods) -> bool:
        """Room and seats as the gang's status says. False while members that went are kept: look again soon."""
        key = key_of(gang)
        held = self._of(key, gang.status.attempt)
        _note_succeeded(held.succeeded, pods)
        placed = placed_nodes(gang.status)
        wanted = {member: node for member, node in placed.items() if member not in held.succeeded}
        leaving = self._still_to_be_bound(key, wanted, held.succeeded, pods)
        wanted |= leaving
        self._reserve(key, gang, held, wanted)
        was_bound = gang.status.phase == BOUND
        # One that has failed since counts as bound until all have been: later its seat is for a replacement.
        bound = {
            member: pod.metadata.uid
            for member, pod in pods.items()
            if lifecycle.is_bound(pod) and (lifecycle.lives(pod) or not was_bound)
        }
        self._gate.expect(key, gang.status.attempt, wanted, bound=bound, was_bound=was_bound)
        return not leaving

    def move(
        self, gang: Gang, pods: Pods, refused: Mapping[str, Collection[str]], version: str
    ) -> tuple[Mapping[str, str], bool]:
        """Other nodes for members whose own are not good any more; reserved, and known here until they are written.

        Also whether there are members for whom there is no other. `version` is that of the Gang which the status is to
        be written to.
        """
        key = key_of(gang)
        found, is_any_left = other_nodes(self._view, gang, pods, refused)
        if not found:
            return found, is_any_left
        moved = self._gate.move(key, found)
        self._keep(gang, found.keys() - moved)
        found = {member: node for member, node in found.items() if member in moved}
        held = self._of(key, gang.status.attempt)
        if held.version != version:
            held.version, held.moved = version, {}
        held.moved |= found
        return found, is_any_left

    def has_succeeded(self, gang: Gang) -> bool:
        """Whether some member of the present attempt has, as far as was seen; its pod may be gone."""
        held = self._held.get(key_of(gang))
        return held is not None and held.attempt == gang.status.attempt and bool(held.succeeded)

    def let_go(self, key: str) -> None:
        """The gang is not placed any more. Bindings under way must have ended: `Gate.wind_up`."""
        self._held.pop(key, None)
        self._view.release(key)
        self._gate.forget(key)

    def _of(self, key: str, attempt: int) -> _Held:
        held = self._held.get(key)
        if held is None or held.attempt != attempt:
            held = self._held[key] = _Held(attempt)
        return held

    def _still_to_be_bound(
        self, key: str, wanted: Mapping[str, str], succeeded: Collection[str], pods: Pods
    ) -> dict[str, str]:
        """Of the members that have room but are wanted no more: those whose Bindings are under way, or not seen yet."""
        reserved = self._view.reserved_members(key)
        gone = {member: reserved[member] for member in reserved.keys() - wanted.keys() if member not in succeeded}
        if not gone:
            return {}
        unbound = self._gate.move(key, gone)
        return {
            member: node
            for member, node in gone.items()
            if member not in unbound and not lifecycle.is_bound_member(pods, member)
        }

    def _reserve(self, key: str, gang: Gang, held: _Held, wanted: Mapping[str, str]) -> None:
        reserved = self._view.reserved_members(key)
        for member in reserved.keys() - wanted.keys():
            self._view.release_member(key, member)
        before, requests = held.requests, self._requests(held, gang)
        # All anew if they need more than was thought, or belong to another attempt.
        is_same = before == requests
        missing = {member: node for member, node in wanted.items() if not is_same or reserved.get(member) != node}
        if missing:
            self._view.reserve(key, missing, requests, attempt=gang.status.attempt)

    def _keep(self, gang: Gang, members: Iterable[str]) -> None:
        """Reserve these members' own nodes again: their Bindings are under way, and will be seen any moment."""
        placed = placed_nodes(gang.status)
        own = {member: placed[member] for member in members if member in placed}
        if own:
            requests = self._requests(self._of(key_of(gang), gang.status.attempt), gang)
            self._view.reserve(key_of(gang), own, requests, attempt=gang.status.attempt)

    def _requests(self, held: _Held, gang: Gang) -> Mapping[str, Amounts]:
        if held.spec is not gang.spec:
            held.spec, held.requests = gang.spec, requests_by_member(demands_understood(gang.spec))
        return held.requests


def _note_succeeded(succeeded: set[str], pods: Pods) -> None:
    """A member that has another pod since is to run again."""
    for member, pod in pods.items():
        (succeeded.add if pod.status.phase == SUCCEEDED else succeeded.discard)(member)
