"""attack.victim: when a job has started."""

from __future__ import annotations

import pytest

from lab.attack.victim import Job
from lab.jobs import TFJOB, JobPlan


def job(*, is_gang: bool, **times: float) -> Job:
    return Job(JobPlan(TFJOB, [], "small-0", is_gang=is_gang), 0.0, times)


@pytest.mark.parametrize(
    ("job_of_victim", "seconds"),
    [
        (job(is_gang=False, first_child=1.0, all_pods=2.0), 2.0),
        (job(is_gang=False, first_child=3.0, all_pods=2.0), 3.0),
        (job(is_gang=False, first_child=1.0), None),
        (job(is_gang=True, first_child=1.0, all_pods=2.0), None),
        (job(is_gang=True, first_child=1.0, all_pods=2.0, admitted=2.5), 2.5),
    ],
)
def test_a_job_has_started_once_it_has_a_child_and_all_pods_and_is_admitted(
    job_of_victim: Job, seconds: float | None
) -> None:
    assert job_of_victim.started == seconds
