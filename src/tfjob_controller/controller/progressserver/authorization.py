"""Which job a report belongs to, by the token that comes with it.

The API server says for which pod a token was made (TokenReview), and the caches say which job the pod belongs to. So a
token is of no use for another job, after its pod was deleted, or for pods that only have the labels of a job's pods.

Threads: any. Source: kubernetes pkg/serviceaccount/claims.go for what a token says of its pod.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from cachetools import TTLCache

from tfjob_controller.api.common.core import JOBS
from tfjob_controller.controller.snapshot import ObjectLookup
from tfjob_controller.kube.meta import OwnerReference, Resource, controller_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock

_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
_REVIEW_SECONDS = 5.0
_POD_NAME, _POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
_USER_PREFIX = "system:serviceaccount:"
# A token is valid for an hour, and no longer than its pod, which is looked up for each report.
_KNOWN_SECONDS, _KNOWN_TOKENS = 300.0, 4096


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The pod that a token was made for."""

    namespace: str
    name: str
    uid: str


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: dict[str, tuple[str, ...]] = {}


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    audiences: tuple[str, ...] = ()
    user: _User = _User()


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class TokenReviewer:
    """Asks the API server about tokens, and remembers the good ones for some minutes."""

    def __init__(self, requester: Requester, clock: Clock) -> None:
        self._requester = requester
        self._lock = threading.Lock()
        self._known: TTLCache[str, PodIdentity] = TTLCache(_KNOWN_TOKENS, _KNOWN_SECONDS, timer=clock.monotonic)

    def known(self, token: str, audience: str) -> PodIdentity | None:
        """The pod of a token that was reviewed before; None if it must be reviewed."""
        with self._lock:
            found: PodIdentity | None = self._known.get(_key(token, audience))
            return found

    def review(self, token: str, audience: str) -> PodIdentity | None:
        """The pod of the token; None if the token is invalid, has another audience or is no pod's. Raises ApiError."""
        body = {
            "apiVersion": _REVIEWS.api_version,
            "kind": _REVIEWS.kind,
            "spec": {"token": token, "audiences": [audience]},
        }
        data = msgspec.json.encode(body)
        # The review changes nothing, so it could be repeated; the program reports again anyway.
        answer = self._requester.request(
            "POST", _REVIEWS.path(), body=data, timeout_seconds=_REVIEW_SECONDS, retry=False
        )
        pod = _pod_of(msgspec.json.decode(answer, type=_Review).status, audience)
        if pod is not None:
            with self._lock:
                self._known[_key(token, audience)] = pod
        return pod


def _key(token: str, audience: str) -> str:
    """The token itself is not kept."""
    return hashlib.sha256(f"{audience}\n{token}".encode()).hexdigest()


def _pod_of(status: _Status, audience: str) -> PodIdentity | None:
    if not status.authenticated or audience not in status.audiences:
        return None
    account = status.user.username.removeprefix(_USER_PREFIX)
    names, uids = status.user.extra.get(_POD_NAME, ()), status.user.extra.get(_POD_UID, ())
    if account == status.user.username or not names or not uids:
        return None
    return PodIdentity(account.partition(":")[0], names[0], uids[0])


@dataclass(frozen=True, slots=True)
class JobsOfPods:
    """Finds the job of a pod by the caches of pods and Jobs. `kinds` are kinds of jobs by apiVersion and kind."""

    pods: ObjectLookup
    jobs: ObjectLookup
    kinds: Mapping[tuple[str, str], Resource]

    def job_of(self, identity: PodIdentity) -> tuple[Resource, OwnerReference] | None:
        """The kind of the TrainJob that the pod belongs to, and its name and UID; None if there is none."""
        pod = self.pods.get(f"{identity.namespace}/{identity.name}")
        owner = controller_of(pod) if pod is not None and pod.metadata.uid == identity.uid else None
        if owner is None or (owner.api_version, owner.kind) != (JOBS.api_version, JOBS.kind):
            return None
        job = self.jobs.get(f"{identity.namespace}/{owner.name}")
        training = controller_of(job) if job is not None and job.metadata.uid == owner.uid else None
        kind = self.kinds.get((training.api_version, training.kind)) if training is not None else None
        return (kind, training) if kind is not None and training is not None else None
