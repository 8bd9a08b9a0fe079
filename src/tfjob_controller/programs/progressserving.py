"""The progress server of the controller: its parts, and the thread that keeps its certificate valid."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import structlog

from tfjob_controller.api.common.core import JOBS, PODS
from tfjob_controller.controller.caches import ControllerCaches
from tfjob_controller.controller.progressserver.authorization import JobsOfPods, TokenReviewer
from tfjob_controller.controller.progressserver.certificates import ServingCertificate
from tfjob_controller.controller.progressserver.reports import Reports
from tfjob_controller.controller.progressserver.server import ProgressHttpServer
from tfjob_controller.httpserver.server import ListenAddress
from tfjob_controller.jobs.podtemplate.progressreport import ProgressServer
from tfjob_controller.kinds.registry import KINDS
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

log = structlog.get_logger(__name__)

# The Service of manifests/components/progress-server.
_DEFAULT_URL = "https://tfjob-controller-progress.{}.svc:10443"
# Another replica may have renewed the certificate, or somebody may have deleted the Secret.
_CHECK_SECONDS = 600.0

_KINDS = {(kind.resource.api_version, kind.resource.kind): kind.resource for kind in KINDS if kind.takes_reports}


class ProgressServing:
    """Serves once `ensure_certificate` has succeeded and `start` was called."""

    def __init__(
        self,
        requester: Requester,
        caches: ControllerCaches,
        address: ListenAddress,
        url: str,
        own_namespace: str,
        observe: Callable[[int], None],
        clock: Clock,
    ) -> None:
        """Listens at once. Without a `url` it is that of the Service in `own_namespace`. Raises ListenError."""
        self._url = url.rstrip("/") or _DEFAULT_URL.format(own_namespace)
        self._certificate = ServingCertificate(requester, own_namespace, urlsplit(self._url).hostname or "", clock)
        self._clock = clock
        self._stop = threading.Event()
        jobs = JobsOfPods(caches.store(PODS), caches.store(JOBS), _KINDS)
        reports = Reports(
            requester,
            TokenReviewer(requester, clock),
            jobs,
            clock,
            is_ready=lambda: caches.informers.is_synced,
            observe=observe,
        )
        self._server = ProgressHttpServer(address, reports, self._certificate.context, clock)
        self._renewal = SupervisedThread("progress-certificate", self._renew, stop=self._stop, clock=clock)

    @property
    def port(self) -> int:
        return self._server.port

    def ensure_certificate(self) -> ProgressServer:
        """Returns what pods must know of the server. Raises ApiError."""
        self._certificate.ensure()
        return ProgressServer(self._url, self._certificate.ca)

    def start(self) -> None:
        self._server.start()
        self._renewal.start()
        log.info("serving reports of progress", port=self.port, url=self._url)

    def stop(self, timeout_seconds: float) -> bool:
        self._stop.set()
        ended = self._server.stop(timeout_seconds)
        return self._renewal.join(timeout_seconds) and ended

    def restarts(self) -> Mapping[str, int]:
        return {"progress-http": self._server.restarts, "progress-certificate": self._renewal.restarts}

    def _renew(self) -> None:
        while not self._clock.sleep(_CHECK_SECONDS, self._stop):
            try:
                self._certificate.ensure()
            except ApiError as error:
                log.warning("certificate of the progress server not checked", error=str(error))
