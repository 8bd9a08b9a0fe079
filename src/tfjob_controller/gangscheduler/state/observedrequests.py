"""What pods of gangs request beyond what their Gangs declare, which the gang scheduler plans with.

Threads: any.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.common.podrequests import Amounts, amounts_of, requests_of
from tfjob_controller.api.common.quantity import PODS, quantity_of
from tfjob_controller.api.gang import Gang, GangSpec, Member, gang_key_of, kind_of, member_of
from tfjob_controller.util.clock import Clock

# An observation that no longer holds, such as a deleted LimitRange, must not block a gang; a futile attempt is cheap.
RETENTION_SECONDS = 600.0


@dataclass(slots=True)
class _GangRequests:
    """`spec` is `declared` with the observed requests; both are None until `apply` needs them."""

    by_kind: dict[str, dict[str, int]] = field(default_factory=dict)
    observed_time: float = 0.0
    declared: GangSpec | None = None
    spec: GangSpec | None = None


class ObservedRequests:
    """Resource requests of gangs' pods where they exceed what their Gangs declare. Safe to use from any thread.

    A Gang declares what each of its pods requests before any pod exists. The API server may add to the pods' requests
    (the defaults of a LimitRange, the overhead of a RuntimeClass, a webhook), or the owner declared too little. kube-
    scheduler goes by the pods; a gang placed by its declaration alone would not pass its filters, and the capacity
    would look free to others. Therefore, from the first pod on, a kind of member counts with the largest requests that
    any of its pods had, or with the declaration if that is larger. This also holds for later attempts, which have no
    pods yet, until the spec declares other resources or the observation expires: then the declaration counts again.

    The observations are not stored. A new leader learns them from the pods.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_gang: dict[str, _GangRequests] = {}

    def add_pod(self, pod: ScheduledPod) -> None:
        """Record the requests of a created pod."""
        key = gang_key_of(pod.metadata)
        if not key:
            return
        try:
            amounts = requests_of(pod)
        except ValueError:
            return
        kind = kind_of(member_of(pod.metadata))
        with self._lock:
            requests = self._by_gang.setdefault(key, _GangRequests())
            requests.observed_time = self._clock.monotonic()
            if _raise(requests.by_kind.setdefault(kind, {}), amounts):
                requests.declared = None

    def apply(self, key: str, gang: Gang) -> Gang:
        """Returns the gang with the observed requests; the same object if its declaration suffices."""
        with self._lock:
            requests = self._by_gang.get(key)
            if requests is None:
                return gang
            if requests.declared is not gang.spec or requests.spec is None:
                requests.declared, requests.spec = gang.spec, _with_requests(gang.spec, requests.by_kind)
            spec = requests.spec
        return gang if spec is gang.spec else replace(gang, spec=spec)

    def expire(self, key: str, gang: Gang) -> float | None:
        """For a waiting gang: drop the observation if it expired or the spec declares other resources.

        Returns the seconds until it expires; None without an observation.
        """
        with self._lock:
            requests = self._by_gang.get(key)
            if requests is None or requests.declared is None or requests.spec is requests.declared:
                return None
            left = requests.observed_time + RETENTION_SECONDS - self._clock.monotonic()
            if left <= 0 or _spec_requests(requests.declared) != _spec_requests(gang.spec):
                del self._by_gang[key]
                return None
        return left

    def forget(self, key: str) -> None:
        """Forget a deleted Gang."""
        with self._lock:
            self._by_gang.pop(key, None)


def _spec_requests(spec: GangSpec) -> tuple[tuple[str, Mapping[str, str]], ...]:
    return tuple((member.name, member.resources) for member in spec.members)


def _with_requests(spec: GangSpec, by_kind: Mapping[str, Amounts]) -> GangSpec:
    members = tuple(_member(member, by_kind.get(member.name, {})) for member in spec.members)
    changed = any(new is not old for new, old in zip(members, spec.members, strict=True))
    return replace(spec, members=members) if changed else spec


def _member(member: Member, needed: Amounts) -> Member:
    try:
        declared = amounts_of(member)
    except ValueError:
        return member
    more = {
        name: quantity_of(name, amount)
        for name, amount in needed.items()
        if name != PODS and amount > declared.get(name, 0)
    }
    return replace(member, resources={**member.resources, **more}) if more else member


def _raise(total: dict[str, int], least: Amounts) -> bool:
    more = {name: amount for name, amount in least.items() if amount > total.get(name, 0)}
    total.update(more)
    return bool(more)
