"""Which rows are of jobs that leave their GPUs unused, by the names of the pods that report some."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from helpers.answering import Answering, Request
from helpers.fakeclock import FakeClock
from tfjob_controller.client.jobclass import JobClass
from tfjob_controller.client.liveuse.prometheus import Sample, SeriesLabels
from tfjob_controller.dashboard.idlejobs import IdleJobs
from tfjob_controller.dashboard.jobrows import JobRow
from tfjob_controller.dashboard.pages.use import idle_jobs
from tfjob_controller.dashboard.users import User
from tfjob_controller.kube.meta import ObjectMeta

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD, YOUNG = "2026-01-01T11:29:00Z", "2026-01-01T11:31:00Z"


def row(name: str = "train", children: str = "ab12", created: str = YOUNG) -> JobRow:
    meta = ObjectMeta(name=name, namespace="team", creation_timestamp=created)
    return JobRow(
        metadata=meta,
        kind="tfjob",
        job_class=JobClass.RUNNING,
        cause="",
        ready="",
        progress="",
        percent=None,
        loss=None,
        gpus=0,
        restarts=0,
        reason="",
        children=children,
    )


def is_idle(job: JobRow, **peaks: float) -> bool:
    return IdleJobs.of({("team", pod.replace("_", "-")): peak for pod, peak in peaks.items()}).includes(job, NOW)


def test_all_gpus_of_a_job_must_be_unused() -> None:
    assert is_idle(row(), train_worker_ab12_0_x7x7x=0.0, train_worker_ab12_1_99999=0.0)
    assert not is_idle(row(), train_worker_ab12_0_x7x7x=0.0, train_worker_ab12_1_99999=1.0)
    assert not is_idle(row())


@pytest.mark.parametrize("job", [row(children=""), row(children="other"), row("ab12", "", OLD), row(children="0")])
def test_other_jobs_are_not_idle(job: JobRow) -> None:
    assert not is_idle(job, train_worker_ab12_0_x7x7x=0.0, ab12=0.0, ab12_0=0.0)


def test_another_namespace_is_not_meant() -> None:
    assert not IdleJobs.of({("other", "train-worker-ab12-0-x7x7x"): 0.0}).includes(row(), NOW)


@pytest.mark.parametrize(("created", "idle"), [(OLD, True), (YOUNG, False)])
def test_a_job_that_owns_its_pods_must_be_as_old(created: str, idle: bool) -> None:
    assert is_idle(row("my-train", "my-train", created), my_train_worker_0=0.0) is idle


class Reviews(Answering):
    """The person may list pods in the namespace `mine`."""

    def answer(self, request: Request) -> bytes:
        attributes = request.body["spec"]["resourceAttributes"]
        is_mine = attributes == {"verb": "list", "resource": "pods", "namespace": "mine"}
        return json.dumps({"status": {"allowed": is_mine}}).encode()


class Asked:
    """A Prometheus in which each namespace has a pod with an unused GPU."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    def query(self, expression: str) -> Sequence[Sample]:
        self.queries.append(expression)
        return [Sample(SeriesLabels("", space, "train-worker-ab12-0-x7x7x"), (0.0, "0")) for space in ("mine", "other")]


def test_prometheus_is_asked_only_about_namespaces_whose_pods_the_person_may_list() -> None:
    user, prometheus = User("me", Reviews(), "", "there", FakeClock()), Asked()
    for namespace in ("other", ""):
        assert idle_jobs(user, namespace, prometheus) == IdleJobs()
    assert prometheus.queries == []
    assert ("mine", "ab12") in idle_jobs(user, "mine", prometheus).keys
    assert 'namespace="mine"' in prometheus.queries[0]
