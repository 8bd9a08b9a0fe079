"""The controllers of all enabled kinds of jobs, which the manager starts and stops together.

A kind whose CRD or rights are missing delays no other one: each starts once its own caches are synced, which they are
soon after the CRD is installed or the rights are given.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import structlog

from tfjob_controller.kinds.kindcontroller import KindController, Shared
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# The interval in which the caches of kinds are checked that the API server refuses.
_POLL_SECONDS = 1.0

_T = TypeVar("_T")


class KindControllers:
    """See the module. The manager's thread builds, starts and stops; the others only read."""

    def __init__(self, controllers: Sequence[KindController], clock: Clock) -> None:
        self._controllers = controllers
        self._clock = clock

    def build(self, shared: Shared, workers: int) -> None:
        """Creates the reconcilers, with `workers` threads for each kind."""
        for controller in self._controllers:
            controller.build(shared, workers)

    @property
    def can_start(self) -> bool:
        """Reports whether the caches of all kinds are synced, apart from those that the API server refuses."""
        return all(controller.is_synced or controller.is_refused for controller in self._controllers)

    def start(self, stop: threading.Event) -> None:
        """Starts the kinds whose caches are synced, and waits to start the others until `stop` is set."""
        waiting = self._controllers
        while waiting:
            ready = [controller for controller in waiting if controller.is_synced]
            waiting = [controller for controller in waiting if controller not in ready]
            if ready:
                _start(ready)
            if waiting and self._clock.sleep(_POLL_SECONDS, stop):
                return

    def stop(self, workers_seconds: float, readers_seconds: float) -> bool:
        """Finishes syncs in progress, in `workers_seconds` for all together; False if one still runs after that."""
        for controller in self._controllers:
            controller.queue.shut_down()
        end = self._clock.monotonic() + workers_seconds
        # All workers are stopped, also if some of them do not end in time.
        ended = [controller.stop_workers(max(0.0, end - self._clock.monotonic())) for controller in self._controllers]
        for controller in self._controllers:
            controller.stop_readers(readers_seconds)
        return all(ended)

    def of_each(self, figures: Callable[[KindController], Iterable[_T]]) -> Iterator[_T]:
        """Yields these figures of each kind, such as its metrics."""
        for controller in self._controllers:
            yield from figures(controller)

    def pages(self) -> dict[str, Callable[[], Any]]:
        """Returns the debug pages of all kinds by name."""
        return {
            **{name: page for controller in self._controllers for name, page in controller.pages().items()},
            "syncs": lambda: {"jobs_remembered": sum(controller.tracked_jobs for controller in self._controllers)},
        }

    def restarts(self) -> dict[str, int]:
        """Returns how often each thread of each kind was restarted."""
        return {name: count for controller in self._controllers for name, count in controller.restarts().items()}


def _start(controllers: Sequence[KindController]) -> None:
    # The queues are fed only now: while another instance leads, no worker here takes keys, and the keys of created and
    # deleted jobs would accumulate.
    for controller in controllers:
        controller.feed()
    # Otherwise each full garbage collection visits all cached objects, while no sync can run: 50 ms at 100,000 objects.
    gc.collect()
    gc.freeze()
    for controller in controllers:
        controller.start()
    jobs = sum(controller.cached_jobs for controller in controllers)
    log.info("workers started", kinds=[controller.kind.name for controller in controllers], jobs=jobs)
