"""Who could have known what, where two schedulers share a node. Pure.

Theory of operation. A scheduler knows its own pods at once, and those of others once a watch has told it. So for a pod
whose node turns out too small, pods of *other* schedulers are left out of the account if its own could not know them:

- The gang scheduler decides for all members that come at a time, and from then on their Bindings are under way, one
  after the other. Their *round* begins with the first of them that is bound; who came to the node since then, or within
  `race_seconds` before (a watch takes its time), was not to be known.
- Any other scheduler asks nobody, and decides at some moment after the pod was made. Who came before that, by more than
  `race_seconds`, was to be known.
- While nobody could read the cluster (`Outages`), what was known at its begin is all that there is to know.

What is still too much for the node then is nobody's race. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from audit.objects import Pod

# Somebody tells of an outage every second or so while it lasts.
_SILENCE_SECONDS = 4.0


@dataclass(slots=True)
class Round:
    """Bindings of a gang that follow one another."""

    attempt: str = ""
    began_at: float = 0.0
    last_at: float = 0.0

    def note(self, attempt: str, now: float, race_seconds: float) -> None:
        """One of its pods was bound."""
        if attempt != self.attempt or now - self.last_at > race_seconds:
            self.attempt, self.began_at = attempt, now
        self.last_at = now


@dataclass(slots=True)
class Outages:
    """When the schedulers could not read the cluster, as far as the auditor was told."""

    _began_at: float = 0.0
    _last_at: float = 0.0

    def note(self, now: float) -> float:
        """There is one now; for how long since this was said last."""
        if now - self._last_at > _SILENCE_SECONDS:
            self._began_at = self._last_at = now
        lasted, self._last_at = now - self._last_at, now
        return lasted

    def known_at(self, now: float, race_seconds: float) -> float:
        """The moment from which the knowledge of `now` is: the same one, or the begin of the outage then."""
        return self._began_at if self._began_at <= now <= self._last_at + race_seconds else now


def unknown_pods(
    pod: Pod, others: Iterable[Pod], bound_at: Mapping[str, float], known_at: float, race_seconds: float
) -> Iterator[Pod]:
    """Pods of other schedulers that came after what was known to the pod's own."""
    for other in others:
        if other.scheduler != pod.scheduler and bound_at.get(other.uid, 0.0) >= known_at - race_seconds:
            yield other
