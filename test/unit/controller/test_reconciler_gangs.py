"""What a sync writes of a job that is a gang, how often, and what it costs those that are none."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.controllerbench import GANG_PATH, JOB_PATH, TFJOB_PATH, ControllerBench
from helpers.manifests import master, workers
from tfjob_controller.controller.outcome import RequeueAfter, Retry, TerminalFailure
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS
from tfjob_controller.kinds.tfjob.kind import TFJOB_DEBOUNCE_SECONDS


@pytest.fixture
def bench() -> ControllerBench:
    return ControllerBench(gangs=GangPolicy(ON_REQUEST, "gang-scheduler"))


def create(bench: ControllerBench, **gang: Any) -> None:
    bench.create(master(), workers(2), gang={"enabled": True, **gang})


def gang_path(bench: ControllerBench) -> str:
    return f"{GANG_PATH}/example-job-{bench.runtime_id}"


def says(bench: ControllerBench, phase: str, **status: Any) -> None:
    bench.api.change(gang_path(bench), {"status": {"phase": phase, **status}})


def admit(bench: ControllerBench) -> None:
    placement = [{"node": "n1", "members": ["master-0", "worker-0", "worker-1"]}]
    says(bench, "Admitted", attempt=1, placement=placement)


def sent(bench: ControllerBench, since: int) -> list[str]:
    return [f"{each.method} {each.path.rsplit('/', 1)[-1]}" for each in bench.api.sent[since:]]


def test_a_gang_costs_one_request_more_and_one_for_each_word_of_its_scheduler(bench: ControllerBench) -> None:
    create(bench)
    bench.settle()
    assert sent(bench, 0) == ["PATCH example-job", "POST gangs", "PATCH status"]
    so_far = len(bench.api.sent)
    admit(bench)
    bench.settle()
    assert sorted(sent(bench, so_far)) == ["PATCH status"] + 3 * ["POST jobs"] + 3 * ["POST services"]
    assert ("Normal", "GangAdmitted", "There is capacity for 3 of 3 replicas") in bench.recorder.events


def test_a_place_in_the_queue_is_written_now_and_then(bench: ControllerBench) -> None:
    create(bench)
    says_waiting = {"message": "needs 3 * cpu: 1"}
    bench.settle()
    says(bench, "Waiting", **says_waiting, position=9)
    bench.settle()
    so_far = len(bench.api.sent)
    for position in (8, 7, 6):
        says(bench, "Waiting", **says_waiting, position=position)
        assert isinstance(bench.sync(), RequeueAfter)
    assert sent(bench, so_far) == []
    bench.clock.advance(TFJOB_DEBOUNCE_SECONDS)
    bench.settle()
    assert sent(bench, so_far) == ["PATCH status"]
    assert "position 6" in bench.status["reason"]


def test_a_job_that_waited_too_long_is_suspended_once_that_is_recorded(bench: ControllerBench) -> None:
    create(bench, timeoutSeconds=60, onTimeout="Suspend")
    bench.settle()
    assert bench.sync() == RequeueAfter(60)
    bench.clock.advance(60)
    so_far = len(bench.api.sent)
    bench.api.fail(503, method="PATCH", part="status")
    assert isinstance(bench.sync(), Retry)
    assert "suspend" not in bench.job["spec"]
    bench.settle()
    assert sent(bench, so_far)[1:3] == ["PATCH status", "PATCH example-job"]
    assert bench.job["spec"]["suspend"] is True
    assert bench.api.objects[gang_path(bench)]["spec"]["suspend"] is True
    assert [event[1] for event in bench.recorder.events].count("TimedOut") == 1


def test_a_gang_that_is_not_the_jobs_own_is_not_touched(bench: ControllerBench) -> None:
    bench.create(master(), RuntimeId="ffff", gang={"enabled": True})
    bench.api.put(GANG_PATH, {"metadata": {"name": "example-job-ffff"}, "spec": {"members": [{"name": "x"}]}})
    assert isinstance(bench.sync(), Retry)
    assert "exists already" in bench.status["reason"]
    assert bench.api.requests("PATCH", "/gangs") == []


def test_a_job_that_became_invalid_releases_its_capacity(bench: ControllerBench) -> None:
    create(bench)
    bench.settle()
    admit(bench)
    bench.settle()
    bench.api.change(f"{TFJOB_PATH}/example-job", {"spec": {"replicaSpecs": []}})
    assert isinstance(bench.sync(), TerminalFailure)
    assert bench.api.objects[gang_path(bench)]["spec"]["suspend"] is True


def test_an_invalid_quantity_fails_the_job_with_a_message(bench: ControllerBench) -> None:
    entry = master()
    container = {**entry["template"]["spec"]["containers"][0], "resources": {"requests": {"cpu": "much"}}}
    bench.create({**entry, "template": {"spec": {"containers": [container]}}}, gang={"enabled": True})
    assert isinstance(bench.sync(), TerminalFailure)
    assert "spec.replicaSpecs[0].template" in bench.status["reason"]


def test_a_job_without_a_gang_costs_the_same_where_gangs_are_watched(bench: ControllerBench) -> None:
    plain = ControllerBench()
    for each in (plain, bench):
        each.create(master(), workers(2))
        each.settle_minor()
    assert [each.method for each in bench.api.sent] == [each.method for each in plain.api.sent]
    assert len(bench.api.paths(JOB_PATH)) == 3


def test_the_group_of_another_scheduler_costs_one_request_and_goes_with_an_invalid_job() -> None:
    volcano = BACKENDS["volcano"]
    bench = ControllerBench(gangs=GangPolicy(ON_REQUEST, volcano.scheduler_name, backend=volcano))
    create(bench)
    bench.settle()
    posted = [each.path.rsplit("/", 1)[-1] for each in bench.api.requests("POST", "/")]
    assert sorted(posted) == [*3 * ["jobs"], "podgroups", *3 * ["services"]]
    (group,) = bench.api.paths("/podgroups/")
    assert group.endswith(f"/example-job-{bench.runtime_id}")
    bench.api.change(f"{TFJOB_PATH}/example-job", {"spec": {"replicaSpecs": []}})
    assert isinstance(bench.sync(), TerminalFailure)
    assert bench.api.paths("/podgroups/") == []
