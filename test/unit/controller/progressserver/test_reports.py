"""Rates of reports: what one job, namespace or client sends costs the others nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from helpers.fakeclock import FakeClock
from tfjob_controller.api.common.core import BatchJob, Pod, PodMeta
from tfjob_controller.api.common.trainerstatus import report_audience
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.controller.progressserver.authorization import KNOWN_TOKENS, JobsOfPods, TokenReviewer
from tfjob_controller.controller.progressserver.reports import (
    CLIENT_REVIEW_RATE,
    NAMESPACE_RATE,
    REFUSED_RATE,
    TOTAL_RATE,
    Reports,
)
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import ObjectMeta, OwnerReference
from tfjob_controller.kube.requester import Requester


@dataclass
class Cluster:
    """Jobs with a pod each. The tokens of a pod are `<namespace>/<job>` and this with `#` and any text.

    The API server can be away.
    """

    clock: FakeClock = field(default_factory=FakeClock)
    pods: dict[str, Any] = field(default_factory=dict)
    jobs: dict[str, Any] = field(default_factory=dict)
    reviews: int = 0
    patches: list[dict[str, Any]] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    failure: ApiError | None = None
    is_synced: bool = True

    def add(self, namespace: str, name: str) -> None:
        owner = OwnerReference("kubeflow.org/v2alpha1", "TrainJob", name, f"uid-{namespace}-{name}", controller=True)
        child = OwnerReference("batch/v1", "Job", f"{name}-node", f"job-{namespace}-{name}", controller=True)
        key = f"{namespace}/{name}"
        self.jobs[f"{key}-node"] = BatchJob(ObjectMeta(f"{name}-node", namespace, child.uid, owner_references=(owner,)))
        self.pods[key] = Pod(PodMeta(name, namespace, f"pod-{name}", owner_references=(child,)))

    def reports(self) -> Reports:
        requester: Requester = self  # type: ignore[assignment]  # it opens no streams
        found = JobsOfPods(self.pods, self.jobs, {(TRAINJOBS.api_version, TRAINJOBS.kind): TRAINJOBS})
        reviewer = TokenReviewer(requester, self.clock)
        return Reports(
            requester, reviewer, found, self.clock, is_ready=lambda: self.is_synced, observe=self.codes.append
        )

    def request(self, method: str, path: str, *, body: bytes = b"", **_: Any) -> bytes:
        if self.failure is not None:
            raise self.failure
        sent = json.loads(body)
        if method == "PATCH":
            self.patches.append(sent)
            return b"{}"
        self.reviews += 1
        token, audiences = sent["spec"]["token"].partition("#")[0], sent["spec"]["audiences"]
        namespace, _, name = token.partition("/")
        if token not in self.pods or audiences != [report_audience(namespace, name)]:
            return b'{"status": {"authenticated": false}}'
        extra = {
            "authentication.kubernetes.io/pod-name": [name],
            "authentication.kubernetes.io/pod-uid": [f"pod-{name}"],
        }
        user = {"username": f"system:serviceaccount:{namespace}:default", "extra": extra}
        return json.dumps({"status": {"authenticated": True, "audiences": audiences, "user": user}}).encode()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def send(reports: Reports, namespace: str, name: str, token: str = "", client: str = "10.0.0.1") -> int:
    body = b'{"trainerStatus": {"progressPercentage": 1}}'
    return reports.take(namespace, name, token or f"{namespace}/{name}", body, client).code


def test_a_report_is_one_write_and_its_token_is_reviewed_once(cluster: Cluster) -> None:
    cluster.add("team", "job")
    reports = cluster.reports()
    assert [send(reports, "team", "job"), send(reports, "team", "job")] == [200, 200]
    assert (cluster.reviews, len(cluster.patches)) == (1, 2)
    assert cluster.patches[0]["metadata"] == {"uid": "uid-team-job"}
    assert cluster.patches[0]["status"]["trainerStatus"]["estimatedRemainingSeconds"] is None
    assert cluster.codes == [200, 200]


def test_a_job_may_report_once_a_second(cluster: Cluster) -> None:
    cluster.add("team", "job")
    reports = cluster.reports()
    while send(reports, "team", "job") == 200:
        pass
    for _ in range(3):
        assert send(reports, "team", "job") == 429
        cluster.clock.advance(1.0)
        assert send(reports, "team", "job") == 200


def test_a_namespace_whose_jobs_report_all_the_time_leaves_reports_to_others(cluster: Cluster) -> None:
    for number in range(100):
        cluster.add("many", f"job-{number}")
    cluster.add("team", "job")
    reports = cluster.reports()
    taken = 0
    for _ in range(10):
        cluster.clock.advance(1.0)
        codes = [send(reports, "many", f"job-{number}", client=f"10.1.0.{number}") for number in range(100)]
        taken += codes.count(200)
        assert send(reports, "team", "job") == 200
    assert taken <= NAMESPACE_RATE[1] + 10 * NAMESPACE_RATE[0] < TOTAL_RATE[1]


def test_tokens_that_nobody_knows_use_up_no_reports_of_others(cluster: Cluster) -> None:
    cluster.add("team", "job")
    reports = cluster.reports()
    codes = [send(reports, "team", "job", f"forged-{number}", client="10.6.6.6") for number in range(1000)]
    assert (codes[0], codes[-1]) == (403, 429)
    assert cluster.reviews == REFUSED_RATE[1]
    assert send(reports, "team", "job") == 200


def test_a_pod_with_any_number_of_valid_tokens_leaves_reviews_to_others(cluster: Cluster) -> None:
    cluster.add("hostile", "job")
    reports = cluster.reports()
    codes: list[int] = []
    for second in range(20):
        cluster.add("team", f"job-{second}")
        codes += [send(reports, "hostile", "job", f"hostile/job#{second}-{n}", client="10.6.6.6") for n in range(100)]
        assert send(reports, "team", f"job-{second}", client=f"10.0.0.{second}") == 200
        cluster.clock.advance(1.0)
    assert (codes[0], codes[-1]) == (200, 429)
    assert cluster.reviews <= 20 + CLIENT_REVIEW_RATE[1] + 20 * CLIENT_REVIEW_RATE[0]


def test_a_pod_with_thousands_of_valid_tokens_from_many_addresses_displaces_its_own(cluster: Cluster) -> None:
    cluster.add("hostile", "job")
    cluster.add("team", "job")
    reports = cluster.reports()
    assert send(reports, "team", "job") == 200
    sent = 0
    for _second in range(250):
        for address in range(20):
            for _ in range(2):
                send(reports, "hostile", "job", f"hostile/job#{sent}", client=f"10.6.6.{address}")
                sent += 1
        cluster.clock.advance(1.0)
    assert cluster.reviews > 2 * KNOWN_TOKENS
    before = cluster.reviews
    assert send(reports, "team", "job") == 200
    assert cluster.reviews == before


def test_a_namespace_with_thousands_of_pods_displaces_its_own_tokens(cluster: Cluster) -> None:
    cluster.add("team", "job")
    reviewer, audience = TokenReviewer(cluster, cluster.clock), report_audience("team", "job")  # type: ignore[arg-type]
    reviewer.review("team/job", audience)
    for number in range(KNOWN_TOKENS + 100):
        cluster.add("hostile", f"job-{number}")
        reviewer.review(f"hostile/job-{number}", report_audience("hostile", f"job-{number}"))
    known = [reviewer.known(f"hostile/job-{n}", report_audience("hostile", f"job-{n}")) for n in range(number + 1)]
    assert [each is not None for each in known] == [False] * 101 + [True] * (KNOWN_TOKENS - 1)
    assert reviewer.known("team/job", audience) is not None


def test_a_token_is_reviewed_again_after_some_minutes(cluster: Cluster) -> None:
    cluster.add("team", "job")
    cluster.add("team", "other")
    reports = cluster.reports()
    for seconds, reviews in ((0.0, 1), (299.0, 1), (1.0, 2)):
        cluster.clock.advance(seconds)
        assert send(reports, "team", "job") == 200
        assert cluster.reviews == reviews
    assert send(reports, "team", "other") == 200


def test_of_a_pod_the_newest_tokens_are_known(cluster: Cluster) -> None:
    cluster.add("team", "job")
    reviewer, audience = TokenReviewer(cluster, cluster.clock), report_audience("team", "job")  # type: ignore[arg-type]
    for number in (0, 1, 0, 2, 2):
        reviewer.review(f"team/job#{number}", audience)
    known = [reviewer.known(f"team/job#{number}", audience) is not None for number in range(3)]
    assert known == [True, False, True]


def test_a_job_of_another_kind_has_no_reports(cluster: Cluster) -> None:
    cluster.add("team", "job")
    job = cluster.jobs["team/job-node"]
    (owner,) = job.metadata.owner_references
    for api_version, kind in (("kubeflow.org/v1alpha1", "TFJob"), ("example.org/v1", "TrainJob")):
        foreign = OwnerReference(api_version, kind, owner.name, owner.uid, controller=True)
        cluster.jobs["team/job-node"] = BatchJob(
            ObjectMeta("job-node", "team", job.metadata.uid, owner_references=(foreign,))
        )
        assert send(cluster.reports(), "team", "job") == 403


@pytest.mark.parametrize(("failure", "code"), [(ApiError(0, "", "refused"), 503), (ApiError(500, "", "no"), 503)])
def test_without_an_api_server_the_program_is_told_to_report_later(
    cluster: Cluster, failure: ApiError, code: int
) -> None:
    cluster.add("team", "job")
    reports = cluster.reports()
    assert send(reports, "team", "job") == 200
    cluster.failure = failure
    assert send(reports, "team", "job") == code


@pytest.mark.parametrize("status", [404, 409])
def test_a_job_that_was_deleted_or_recreated_gets_no_report(cluster: Cluster, status: int) -> None:
    cluster.add("team", "job")
    reports = cluster.reports()
    assert send(reports, "team", "job") == 200
    cluster.failure = ApiError(status, "", "gone")
    assert send(reports, "team", "job") == 404


def test_before_the_caches_are_filled_nobody_is_refused(cluster: Cluster) -> None:
    cluster.is_synced = False
    assert send(cluster.reports(), "team", "job") == 503
    assert cluster.reviews == 0
