"""Decides which pods a scheduler could know of, where two schedulers share a node. Pure.

Theory of operation. A scheduler knows its own pods at once, and those of others after its watch has delivered them. If
a node turns out to be over-committed, pods of *other* schedulers that the pod's own could not know of do not count:

- The gang scheduler decides for all members that arrive together, and their Bindings are sent one after another from
  then on. Such a *round* begins with the first member that is bound. A pod that came to the node after that, or up to
  `race_seconds` before (the delay of a watch), was unknown.
- Any other scheduler decides at some time after the pod was created. Pods that came more than `race_seconds` before the
  creation were known.
- If the schedulers could not read the cluster (`Outages`), they knew what they had read before the outage.

A node that is over-committed without those pods is a violation and not a race. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from audit.objects import Pod

# An outage is reported about once a second while it lasts.
_REPORT_SECONDS = 4.0


@dataclass(slots=True)
class Round:
    """Bindings of a gang that follow one another."""

    attempt: str = ""
    began_at: float = 0.0
    last_at: float = 0.0

    def note(self, attempt: str, now: float, race_seconds: float) -> None:
        """Records that a pod of the gang was bound."""
        if attempt != self.attempt or now - self.last_at > race_seconds:
            self.attempt, self.began_at = attempt, now
        self.last_at = now


@dataclass(slots=True)
class Outages:
    """The times at which schedulers could not read the cluster, as reported to the auditor."""

    _began_at: float = 0.0
    _last_at: float = 0.0

    def note(self, now: float) -> float:
        """Records that an outage lasts now; returns the seconds since its last report."""
        if now - self._last_at > _REPORT_SECONDS:
            self._began_at = self._last_at = now
        lasted, self._last_at = now - self._last_at, now
        return lasted

    def known_at(self, now: float, race_seconds: float) -> float:
        """Returns the time of the last read before `now`: `now` itself, or the begin of an outage that contains it."""
        return self._began_at if self._began_at <= now <= self._last_at + race_seconds else now


def pods_unknown_to(
    pod: Pod, others: Iterable[Pod], bound_at: Mapping[str, float], known_at: float, race_seconds: float
) -> Iterator[Pod]:
    """Yields the pods of other schedulers that came to the node after `known_at`."""
    for other in others:
        if other.scheduler != pod.scheduler and bound_at.get(other.uid, 0.0) >= known_at - race_seconds:
            yield other
