"""Authorizes progress reports: finds the job of a report by the token of its request.

A TokenReview shows for which pod a token was issued, and the caches show which job the pod belongs to. So a
token is of no use for another job, after its pod was deleted, or for pods that only have the labels of a job's pods.

Threads: any. Source: kubernetes pkg/serviceaccount/claims.go for the claims about its pod in a token.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tfjob_controller.api.common.core import JOBS, BatchJob, Pod
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import Object, OwnerReference, Resource, controller_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock

_REVIEWS: Resource[Object] = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
_REVIEW_SECONDS = 5.0
_POD_NAME, _POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
_USER_PREFIX = "system:serviceaccount:"
# A token is valid for an hour, and no longer than its pod, which is looked up for each report.
_KNOWN_SECONDS, KNOWN_TOKENS = 300.0, 4096
# The kubelet replaces a token before its end, and two programs of a pod may have read it at different times.
TOKENS_OF_POD = 2


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
    """Asks the API server about tokens, and remembers the good ones for some minutes.

    Of a pod the newest are known. If there are too many, the namespace with the most known tokens loses its oldest.
    """

    def __init__(self, requester: Requester, clock: Clock) -> None:
        self._requester = requester
        self._clock = clock
        self._lock = threading.Lock()
        # With the time of its end; the oldest first. At most 4 MB: hashes, and the names of pods.
        self._known: dict[str, tuple[PodIdentity, float]] = {}
        self._of_pods: dict[PodIdentity, list[str]] = {}
        self._namespaces: Counter[str] = Counter()

    def known(self, token: str, audience: str) -> PodIdentity | None:
        """The pod of a token that was reviewed before; None if it must be reviewed."""
        with self._lock:
            pod, end = self._known.get(_key(token, audience), (None, 0.0))
        return pod if end > self._clock.monotonic() else None

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
                self._remember(_key(token, audience), pod)
        return pod

    def _remember(self, key: str, pod: PodIdentity) -> None:
        now = self._clock.monotonic()
        while self._known and (oldest := next(iter(self._known.items())))[1][1] <= now:
            self._forget(oldest[0])
        if key in self._known:
            self._forget(key)
        of_pod = self._of_pods.get(pod, [])
        if len(of_pod) >= TOKENS_OF_POD:
            self._forget(of_pod[0])
        elif len(self._known) >= KNOWN_TOKENS:
            largest = max(self._namespaces, key=self._namespaces.__getitem__)
            self._forget(next(known for known, (owner, _) in self._known.items() if owner.namespace == largest))
        self._known[key] = (pod, now + _KNOWN_SECONDS)
        self._of_pods.setdefault(pod, []).append(key)
        self._namespaces[pod.namespace] += 1

    def _forget(self, key: str) -> None:
        pod, _ = self._known.pop(key)
        self._of_pods[pod].remove(key)
        if not self._of_pods[pod]:
            del self._of_pods[pod]
        self._namespaces[pod.namespace] -= 1
        if not self._namespaces[pod.namespace]:
            del self._namespaces[pod.namespace]


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

    pods: Store[Pod]
    jobs: Store[BatchJob]
    kinds: Mapping[tuple[str, str], Resource[Object]]

    def job_of(self, identity: PodIdentity) -> tuple[Resource[Object], OwnerReference] | None:
        """The kind of the TrainJob that the pod belongs to, and its name and UID; None if there is none."""
        pod = self.pods.get(f"{identity.namespace}/{identity.name}")
        owner = controller_of(pod) if pod is not None and pod.metadata.uid == identity.uid else None
        if owner is None or (owner.api_version, owner.kind) != (JOBS.api_version, JOBS.kind):
            return None
        job = self.jobs.get(f"{identity.namespace}/{owner.name}")
        training = controller_of(job) if job is not None and job.metadata.uid == owner.uid else None
        kind = self.kinds.get((training.api_version, training.kind)) if training is not None else None
        return (kind, training) if kind is not None and training is not None else None
