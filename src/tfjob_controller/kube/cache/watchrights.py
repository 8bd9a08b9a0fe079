"""Checks periodically that the program still has the rights for its watches. Without them it is not ready.

The API server checks rights only when a watch begins, and a watch lasts for many minutes. If a role or its binding is
deleted meanwhile, for example together with another installation, all writes are refused although the watches continue
and the program seems to be healthy.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec
import structlog

from tfjob_controller.kube.accessreviews import may
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

log = structlog.get_logger(__name__)

PERIOD_SECONDS = 30.0


class WatchRights:
    """Checks the rights every `PERIOD_SECONDS`, in a separate thread, by reviews of the API server (`accessreviews`).

    `watched` has resources, each with its namespace, or "" for all namespaces. If a review fails, the last result
    stays: an API server that does not respond has not refused anything.
    """

    def __init__(self, requester: Requester, watched: Sequence[tuple[Resource[Object], str]], clock: Clock) -> None:
        self._requester, self._watched, self._clock = requester, watched, clock
        self._missing: tuple[str, ...] = ()
        self._stop = threading.Event()
        self.thread = SupervisedThread("watch-rights", self._run, stop=self._stop, clock=clock)

    def start(self) -> None:
        self.thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        self._stop.set()
        return self.thread.join(timeout_seconds)

    def problems(self) -> list[str]:
        """Returns one line that names the missing rights and the remedy; empty if none is known to be missing."""
        if not self._missing:
            return []
        kinds = ", ".join(self._missing)
        return [f"may not watch {kinds} any more: its role or the binding is gone; apply the manifests again"]

    def _run(self) -> None:
        while not self._clock.sleep(PERIOD_SECONDS, self._stop):
            try:
                missing = tuple(
                    resource.full_name
                    for resource, namespace in self._watched
                    if not may(self._requester, "watch", resource, namespace)
                )
            except (ApiError, msgspec.MsgspecError) as error:
                log.debug("rights are not known", error=str(error))
                continue
            if missing != self._missing:
                self._missing = missing
                log.warning("rights have changed", missing=list(missing))
