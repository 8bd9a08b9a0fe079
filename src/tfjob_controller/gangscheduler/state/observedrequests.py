"""What the pods of gangs really request, where that is more than their Gangs say.

Theory of operation. A Gang says what each of its pods requests before there is any. The API server may put more into
the pods themselves: a LimitRange's defaults, a RuntimeClass's overhead, whatever a webhook adds; or the owner said too
little. kube-scheduler goes by the pods, so a gang that is placed by its own words alone would not pass, and its room
would look free to others. Therefore, from the first pod on, a kind of member counts with the most that any of its pods
has requested, and with what the Gang says if that is more. It counts so for the gang's later attempts too, for which
there are no pods yet, until its spec says other resources or a while has passed: then the Gang is believed once more.

Nothing of it is kept anywhere: whoever takes over learns it again from the pods.

Threads: any; a lock of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from tfjob_controller.api.cluster import ScheduledPod
from tfjob_controller.api.gang import MEMBER_LABEL, Gang, GangSpec, Member, gang_key_of, kind_of
from tfjob_controller.api.podrequests import Amounts, amounts_of, requests_of
from tfjob_controller.api.quantity import PODS, quantity_of
from tfjob_controller.util.clock import Clock

# What is not so any more (the LimitRange is gone) should not keep a gang out for ever; an attempt in vain is cheap.
RETENTION_SECONDS = 600.0

_Asked = tuple[tuple[str, Mapping[str, str]], ...]


@dataclass(slots=True)
class _Needs:
    """`spec` is `said` with what the pods need; both None until it is asked for."""

    by_kind: dict[str, dict[str, int]] = field(default_factory=dict)
    noted_at: float = 0.0
    said: GangSpec | None = None
    spec: GangSpec | None = None


class ObservedRequests:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_gang: dict[str, _Needs] = {}

    def note(self, pod: ScheduledPod) -> None:
        """A pod has been created."""
        key = gang_key_of(pod.metadata)
        if not key:
            return
        try:
            amounts = requests_of(pod)
        except ValueError:
            return
        kind = kind_of(pod.metadata.labels.get(MEMBER_LABEL, ""))
        with self._lock:
            needs = self._by_gang.setdefault(key, _Needs())
            needs.noted_at = self._clock.monotonic()
            if _raise_to(needs.by_kind.setdefault(kind, {}), amounts):
                needs.said = None

    def apply(self, key: str, gang: Gang) -> Gang:
        """The gang as its pods are, as far as they are known; the very same object where it has said enough."""
        with self._lock:
            needs = self._by_gang.get(key)
            if needs is None:
                return gang
            if needs.said is not gang.spec or needs.spec is None:
                needs.said, needs.spec = gang.spec, _corrected(gang.spec, needs.by_kind)
            spec = needs.spec
        return gang if spec is gang.spec else replace(gang, spec=spec)

    def expire(self, key: str, gang: Gang) -> float | None:
        """For a gang that waits: believe it again if it says something else now, or a while has passed.

        Returns the seconds until then; None where there is nothing to wait for.
        """
        with self._lock:
            needs = self._by_gang.get(key)
            if needs is None or needs.said is None or needs.spec is needs.said:
                return None
            left = needs.noted_at + RETENTION_SECONDS - self._clock.monotonic()
            if left <= 0 or _asked(needs.said) != _asked(gang.spec):
                del self._by_gang[key]
                return None
        return left

    def forget(self, key: str) -> None:
        """The Gang is gone."""
        with self._lock:
            self._by_gang.pop(key, None)


def _asked(spec: GangSpec) -> _Asked:
    return tuple((member.name, member.resources) for member in spec.members)


def _corrected(spec: GangSpec, by_kind: Mapping[str, Amounts]) -> GangSpec:
    members = tuple(_member(each, by_kind.get(each.name, {})) for each in spec.members)
    changed = any(new is not old for new, old in zip(members, spec.members, strict=True))
    return replace(spec, members=members) if changed else spec


def _member(member: Member, needed: Amounts) -> Member:
    try:
        said = amounts_of(member)
    except ValueError:
        return member
    more = {
        name: quantity_of(name, amount)
        for name, amount in needed.items()
        if name != PODS and amount > said.get(name, 0)
    }
    return replace(member, resources={**member.resources, **more}) if more else member


def _raise_to(total: dict[str, int], least: Amounts) -> bool:
    more = {name: amount for name, amount in least.items() if amount > total.get(name, 0)}
    total.update(more)
    return bool(more)
