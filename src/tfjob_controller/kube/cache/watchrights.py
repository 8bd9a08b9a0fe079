"""Whether a program may still watch what it watches.

The API server checks the rights of a watch when it begins, and a watch may last for many minutes. If the binding of a
role is deleted meanwhile, for example together with another installation, the program can write nothing and seems to be
healthy. So the rights are asked for from time to time, and a program without them is not ready.
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
    """Asks every `PERIOD_SECONDS`, in a thread of its own. `watched` are resources, each with its namespace or "".

    What is not answered stays as it was: that the API server does not respond is no lack of rights.
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
        """Which rights are missing, one line with the remedy; nothing if none is known to be."""
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
