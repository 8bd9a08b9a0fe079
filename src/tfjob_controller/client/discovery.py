"""Which kinds of jobs a cluster serves, as far as that saves requests.

The kinds of `kubeflow.org/v1` come together, and most clusters have none of them: one request tells which of them the
API server serves, so that no command asks for each. A cluster serves TFJobs of `v1alpha1` or of `v1`, since their CRDs
have one name: where only TFJobs are asked for, the first of both that is served has them all.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec

from tfjob_controller.api.kubeflowv1.types import API_GROUP, VERSION
from tfjob_controller.client.errors import ClientError
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock

_V1 = f"{API_GROUP}/{VERSION}"
_PATH = f"/apis/{_V1}"
# A client may live for days, and a CRD be applied meanwhile.
_KNOWN_SECONDS = 60.0


def is_left_out(error: ApiError) -> bool:
    """Whether the jobs of other kinds are shown without those of a kind that was refused with this error.

    The cluster does not have the kind, or the user has no right on it: roles such as Kubeflow's name some kinds only.
    """
    return error.is_not_found or error.is_forbidden


def explained(kind: ClientKind, error: ApiError) -> ApiError | ClientError:
    """Returns the error about jobs of `kind`, with the remedy if the cluster lacks that kind of v1."""
    if not error.is_unknown_kind or kind.resource.api_version != _V1:
        return error
    what = f"the cluster knows no {kind.resource.kind}s: see docs/kubeflow-v1.md, or choose another context"
    # The text of an API error has the remedy for the kinds of this project.
    return ClientError(f"{error.message}: {what}")


class _Served(msgspec.Struct, frozen=True):
    name: str = ""


class _ServedList(msgspec.Struct, frozen=True):
    resources: tuple[_Served, ...] = ()


_decode = decoder_for(_ServedList)


class Discovery:
    """Knows for a minute what the API server serves of `kubeflow.org/v1`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plurals: frozenset[str] = frozenset()
        self._known_until = -1.0

    def served(self, requester: Requester, kinds: Sequence[ClientKind], clock: Clock) -> Sequence[ClientKind]:
        """Returns `kinds` without those of v1 that are not served, and without their namesakes if they are.

        Kinds of one word need no request: those for their jobs tell as much. Raises `ApiError`.
        """
        if len({kind.word for kind in kinds}) == 1 or all(kind.resource.api_version != _V1 for kind in kinds):
            return kinds
        plurals = self._served_plurals(requester, clock)
        served = [kind for kind in kinds if kind.resource.api_version == _V1 and kind.resource.plural in plurals]
        words = {kind.word for kind in served}
        others = [kind for kind in kinds if kind.resource.api_version != _V1 and kind.word not in words]
        return [kind for kind in kinds if kind in others or kind in served]

    def _served_plurals(self, requester: Requester, clock: Clock) -> frozenset[str]:
        with self._lock:
            if clock.monotonic() >= self._known_until:
                self._plurals = _read(requester)
                self._known_until = clock.monotonic() + _KNOWN_SECONDS
            return self._plurals


def _read(requester: Requester) -> frozenset[str]:
    """Returns the plurals that are served; none for a user who may not ask, or if the response is none."""
    try:
        body = requester.request("GET", _PATH)
        return frozenset(served.name for served in _decode(body).resources)
    except msgspec.MsgspecError:
        return frozenset()
    except ApiError as error:
        if error.is_not_found or error.is_forbidden:
            return frozenset()
        raise
