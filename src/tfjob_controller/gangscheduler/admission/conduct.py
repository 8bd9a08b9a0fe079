"""Records of how the gangs of each namespace have behaved in preemptions.

Gangs can be deleted and made again, so what they did is remembered for their namespace:

    preemptors  others left for a gang, which then did not start: the next preemption of the namespace waits for a
                time that doubles with each such gang. A preemption counts as soon as it begins, whatever becomes of the
                Gang; once the gang is bound, the namespace is forgiven
    victims     its pods were asked to leave, and neither its owner nor an eviction made them: the gangs of the
                namespace are asked after all others from then on

Nothing is stored: a new process begins without it. Threads: the admission loop's.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfjob_controller.api.gang import Gang
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.fairness import FairCache

BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 15.0, 3600.0
# For how long a namespace is remembered after its last misbehaviour: much longer than it ever waits.
MEMORY_SECONDS = 86_400.0
# How often one preemptor may ask more gangs in its turn, because those asked before did not leave or it did not fit.
MAX_PLANS = 8
# Namespaces are made by administrators, so this bounds nothing but the memory.
_MAX_NAMESPACES = 4096


@dataclass(frozen=True, slots=True)
class _Preemption:
    """The last preemption for a gang of a namespace that has not started: `plans` were made for this spec and attempt.

    `failures` counts those before it, too, and no other begins before `until`, in monotonic seconds.
    """

    uid: str
    spec: tuple[int, int]
    plans: int
    failures: int
    until: float

    def goes_on(self, gang: Gang) -> bool:
        return (self.uid, self.spec) == _identity(gang) and self.plans < MAX_PLANS


class Preemptors:
    """The namespaces whose gangs have preempted others and have not started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: FairCache[str, _Preemption] = FairCache(_MAX_NAMESPACES)

    def blocked(self, gang: Gang) -> tuple[int, float] | None:
        """Returns, if the gang must not preempt now, how many before it have failed and until when, monotonic."""
        last = self._get(gang)
        if last is None or last.goes_on(gang) or last.until <= self._clock.monotonic():
            return None
        return last.failures, last.until

    def note_begun(self, gang: Gang) -> None:
        """Record that others are asked to leave for the gang."""
        last, now = self._get(gang), self._clock.monotonic()
        uid, spec = _identity(gang)
        if last is not None and last.goes_on(gang):
            self._put(gang, _Preemption(uid, spec, last.plans + 1, last.failures, last.until))
            return
        failures = last.failures + 1 if last is not None else 1
        seconds = min(BACKOFF_SECONDS * 2.0 ** min(failures - 1, 16), MAX_BACKOFF_SECONDS)
        self._put(gang, _Preemption(uid, spec, 1, failures, now + seconds))

    def note_bound(self, gang: Gang) -> None:
        """Forgive the namespace if others left for this gang last."""
        last = self._get(gang)
        if last is not None and last.uid == gang.metadata.uid:
            self._last.remove(gang.metadata.namespace, "")

    def _get(self, gang: Gang) -> _Preemption | None:
        last = self._last.get(gang.metadata.namespace, "")
        return None if last is None or last.until + MEMORY_SECONDS < self._clock.monotonic() else last

    def _put(self, gang: Gang, last: _Preemption) -> None:
        self._last.put(gang.metadata.namespace, "", last)


class Stayers:
    """The namespaces whose gangs have stayed when they were to leave."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: FairCache[str, float] = FairCache(_MAX_NAMESPACES)

    def add(self, namespace: str) -> None:
        self._since.put(namespace, "", self._clock.monotonic())

    def has(self, namespace: str) -> bool:
        since = self._since.get(namespace, "")
        return since is not None and self._clock.monotonic() < since + MEMORY_SECONDS


def _identity(gang: Gang) -> tuple[str, tuple[int, int]]:
    return gang.metadata.uid, (gang.metadata.generation, gang.status.attempt)
