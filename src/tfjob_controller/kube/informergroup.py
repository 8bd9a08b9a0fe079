"""The informers of one program, started and stopped together. Threads: any; `start` once, `stop` at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfjob_controller.kube.informer import Informer, InformerStatistics
from tfjob_controller.util.clock import Clock


class InformerGroup:
    """All of `informers`, in this order."""

    def __init__(self, informers: Sequence[Informer[Any]], clock: Clock) -> None:
        self._informers = tuple(informers)
        self._clock = clock

    def start(self) -> None:
        for informer in self._informers:
            informer.start()

    def stop(self, timeout_seconds: float) -> bool:
        """End all threads; False if one has not ended in that time, which is for all together."""
        deadline = self._clock.monotonic() + timeout_seconds
        for informer in self._informers:
            informer.begin_stop()
        ended = [informer.stop(deadline - self._clock.monotonic()) for informer in self._informers]
        return all(ended)

    @property
    def is_synced(self) -> bool:
        return all(informer.is_synced for informer in self._informers)

    def problems(self) -> list[str]:
        """Which caches are not filled, and why, in words that name the missing CRD or right."""
        return [
            f"{informer.name} not synced: {informer.last_error or 'the first list has not come yet'}"
            for informer in self._informers
            if not informer.is_synced
        ]

    def statistics(self) -> Mapping[str, InformerStatistics]:
        """By resource."""
        return {informer.name: informer.statistics() for informer in self._informers}

    def restarts(self) -> dict[str, int]:
        """How often each thread of the informers died."""
        counts: dict[str, int] = {}
        for name, figures in self.statistics().items():
            counts[f"informer-{name}"] = figures.thread_restarts
            counts.update({f"handler-{handler.name}": handler.thread_restarts for handler in figures.handlers})
        return counts
