"""The connection of the client to the API server, and its errors in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tfjob_controller.client.errors import LISTING, ClientError, error_text
from tfjob_controller.client.kinds import JobKind, Snapshot, snapshot_decoder
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock, RealClock

# A person waits, who can repeat the call.
TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Connection:
    """`origin` says where the server is and how that is known; `listing` which command lists the jobs. Thread-safe."""

    requester: Requester
    namespace: str
    origin: str
    listing: str = LISTING
    clock: Clock = field(default_factory=RealClock)

    def of(self, kind: JobKind) -> ResourceClient[Snapshot]:
        return ResourceClient(self.requester, kind.resource, snapshot_decoder(kind), timeout_seconds=TIMEOUT_SECONDS)

    def send(self, kind: JobKind, namespace: str, body: bytes, query: Mapping[str, str]) -> Snapshot:
        """Create."""
        path = kind.resource.path(namespace)
        answer = self.requester.request("POST", path, body=body, query=query, timeout_seconds=TIMEOUT_SECONDS)
        try:
            return snapshot_decoder(kind)(answer)
        except msgspec.MsgspecError:
            words = "the server's response is not a job: check for a proxy in between, and whether the job exists"
            raise ClientError(words) from None

    @contextmanager
    def plainly(self) -> Iterator[None]:
        """Converts `ApiError` to `ClientError`, without a chained traceback."""
        try:
            yield
        except ApiError as error:
            raise self.told(error) from None

    def told(self, error: ApiError) -> ClientError:
        return ClientError(error_text(error, self.origin, self.listing), error)


def open_transport(kubeconfig: str | None, context: str | None, user_agent: str) -> tuple[Any, Any]:
    """A configuration and its transport. Loads the Kubernetes client, which takes a while."""
    from tfjob_controller.kube.config.credentials import KubeconfigError
    from tfjob_controller.kube.config.kubeconfig import load_config
    from tfjob_controller.kube.http.transport import Transport

    try:
        config = load_config(kubeconfig, context)
    except KubeconfigError as error:
        raise ClientError(str(error)) from None
    return config, Transport(config, qps=0, user_agent=user_agent)
