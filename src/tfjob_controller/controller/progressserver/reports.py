"""Takes reports: checks who sent one, keeps to the rates, and writes it to the status of the job.

Each replica of the controller takes reports, whichever leads, since the result is in the API server: the leader sees
the changed status as any other change of the job.

Rates. A job may report once a second, and a few times at once, since programs report at their begin and end out of
turn. A namespace and all namespaces together have limits as well, because each report is a write to the API server.
Tokens that are not known are reviewed by the API server: each address has a rate of reviews, since a pod can have any
number of valid tokens, and one whose tokens were refused has to wait longer, so that it cannot use up the reviews of
others.

Threads: any. Source: KEP-2779 of kubeflow/trainer; pkg/statusserver/server.go for the responses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from tfjob_controller.api.common.trainerstatus import ReportError, TrainerStatus, decode_report, report_audience
from tfjob_controller.controller.progressserver.authorization import JobsOfPods, PodIdentity, TokenReviewer
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.flowcontrol import TokenBucket, TokenBuckets
from tfjob_controller.kube.meta import Object, OwnerReference, Resource
from tfjob_controller.kube.requester import MERGE_PATCH, Requester
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# Rate per second, and how many at once.
JOB_RATE, NAMESPACE_RATE, TOTAL_RATE = (1.0, 5), (5.0, 20), (50.0, 100)
REVIEW_RATE, CLIENT_REVIEW_RATE, REFUSED_RATE = (50.0, 200), (2.0, 20), (1.0, 10)
_WRITE_SECONDS = 5.0
_FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(TrainerStatus))


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a report: a status of HTTP and a body as JSON."""

    code: int
    body: bytes


def refusal(code: int, reason: str, message: str) -> Answer:
    """A response as the API server writes it: a `Status`."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return Answer(code, msgspec.json.encode(status))


_FORBIDDEN = refusal(
    403, "Forbidden", "the token is not one that the pods of this job have: read it again from its file"
)
_BUSY = refusal(429, "TooManyRequests", "too many reports: report once a second or less")
_AWAY = refusal(503, "ServiceUnavailable", "the controller cannot reach the API server now: report again later")


class _RefusedError(Exception):
    """The report gets this answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.code)
        self.answer = answer


class Reports:
    """Takes the reports for all jobs.

    `is_ready` reports whether the caches of `jobs` are filled; `observe` is called with the code of each answer.
    """

    def __init__(
        self,
        requester: Requester,
        reviewer: TokenReviewer,
        jobs: JobsOfPods,
        clock: Clock,
        *,
        is_ready: Callable[[], bool] = lambda: True,
        observe: Callable[[int], None] = lambda code: None,
    ) -> None:
        self._requester = requester
        self._reviewer = reviewer
        self._jobs = jobs
        self._clock = clock
        self._is_ready = is_ready
        self._observe = observe
        self._of_job = TokenBuckets(*JOB_RATE, clock)
        self._of_namespace = TokenBuckets(*NAMESPACE_RATE, clock)
        self._refused = TokenBuckets(*REFUSED_RATE, clock)
        self._all = TokenBucket(*TOTAL_RATE, clock)
        self._reviews = TokenBucket(*REVIEW_RATE, clock)
        self._reviews_of_client = TokenBuckets(*CLIENT_REVIEW_RATE, clock)

    def take(self, namespace: str, name: str, token: str, body: bytes, client: str) -> Answer:
        """Processes a report for a job; `client` is the address that sent it. Sends requests and waits for them."""
        try:
            answer = self._take(namespace, name, token, body, client)
        except _RefusedError as refused:
            answer = refused.answer
        except ApiError as error:
            log.warning("report not written", namespace=namespace, job=name, error=str(error))
            answer = _AWAY
        self._observe(answer.code)
        return answer

    def _take(self, namespace: str, name: str, token: str, body: bytes, client: str) -> Answer:
        if not self._is_ready():
            return _AWAY
        kind, job = self._authorized(namespace, name, token, client)
        try:
            report = decode_report(body, self._clock.now())
        except ReportError as error:
            return refusal(422, "Invalid", str(error))
        if report is None:
            return Answer(200, b"{}")
        # The narrowest first, so that a report that is refused costs no other one.
        for rate in (self._of_job.of(job.uid), self._of_namespace.of(namespace), self._all):
            if not rate.try_take():
                return _BUSY
        self._write(kind, namespace, job, report)
        return Answer(200, msgspec.json.encode({"trainerStatus": report}))

    def _authorized(
        self, namespace: str, name: str, token: str, client: str
    ) -> tuple[Resource[Object], OwnerReference]:
        """The kind of the job that the path names and its reference. Raises _RefusedError and ApiError."""
        audience = report_audience(namespace, name)
        pod = self._reviewer.known(token, audience) or self._reviewed(token, audience, client)
        owner = self._jobs.job_of(pod) if pod is not None and pod.namespace == namespace else None
        if owner is None or owner[1].name != name:
            self._refused.of(client).try_take()
            raise _RefusedError(_FORBIDDEN)
        return owner

    def _reviewed(self, token: str, audience: str, client: str) -> PodIdentity | None:
        # The narrowest first, as for reports.
        is_allowed = self._refused.of(client).has_token() and self._reviews_of_client.of(client).try_take()
        if not is_allowed or not self._reviews.try_take():
            raise _RefusedError(_BUSY)
        return self._reviewer.review(token, audience)

    def _write(self, kind: Resource[Object], namespace: str, job: OwnerReference, report: TrainerStatus) -> None:
        body = msgspec.json.encode({"metadata": {"uid": job.uid}, "status": {"trainerStatus": _replacing(report)}})
        path = kind.path(namespace, job.name, "status")
        try:
            self._requester.request(
                "PATCH", path, body=body, content_type=MERGE_PATCH, timeout_seconds=_WRITE_SECONDS, retry=False
            )
        except ApiError as error:
            if error.is_not_found or error.is_conflict:
                raise _RefusedError(refusal(404, "NotFound", f"the job {job.name} does not exist any more")) from None
            raise


def _replacing(report: TrainerStatus) -> Mapping[str, Any]:
    """A merge patch that replaces the earlier report: fields that the new one lacks are removed."""
    return {**dict.fromkeys(_FIELDS), **msgspec.to_builtins(report)}
