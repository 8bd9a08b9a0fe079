"""What version of Kubernetes the API server is."""

from __future__ import annotations

import msgspec
import structlog

from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import Requester

log = structlog.get_logger(__name__)

# The one request that all waits for is given up, said to be in trouble and sent again after this time.
_VERSION_SECONDS = 5.0


class _Version(msgspec.Struct):
    major: str
    minor: str


def server_version(requester: Requester) -> tuple[int, int]:
    """Major and minor of the API server; (0, 0) where it does not tell us. Raises ApiError if it cannot be asked."""
    try:
        said = msgspec.json.decode(
            requester.request("GET", "/version", timeout_seconds=_VERSION_SECONDS, retry=False), type=_Version
        )
        # Vendors write "36+".
        return int(said.major), int("".join(filter(str.isdigit, said.minor)))
    except (msgspec.DecodeError, ValueError):
        return (0, 0)
    except ApiError as error:
        if error.is_forbidden or error.is_not_found:
            log.warning("the API server does not tell its version, assuming an old one", error=str(error))
            return (0, 0)
        raise
