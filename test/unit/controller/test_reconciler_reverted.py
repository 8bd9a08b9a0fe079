"""A client that undoes each write to a child: the controller backs off, and says so once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from helpers.controllerbench import JOB_PATH, SERVICE_PATH, TFJOB_PATH, ControllerBench
from helpers.manifests import master, workers
from helpers.trainbench import TrainBench
from tfjob_controller.controller.outcome import RequeueAfter, Retry
from tfjob_controller.jobs.actions.reverted import FIRST_DELAY_SECONDS

FIGHT_SECONDS = 600


@pytest.fixture
def bench() -> ControllerBench:
    bench = ControllerBench()
    bench.create(master(), workers(2))
    bench.settle()
    return bench


def condition(bench: ControllerBench | TrainBench) -> dict[str, Any]:
    found = [each for each in bench.status.get("conditions", ()) if each["type"] == "ChangesReverted"]
    return found[0] if found else {}


def suspend(bench: ControllerBench, *replicas: str, manager: str = "a-queue") -> None:
    for replica in replicas:
        path = f"{JOB_PATH}/{bench.child(replica)}"
        if path in bench.api.objects:
            entry = {"manager": manager, "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:suspend": {}}}}
            bench.api.change(path, {"metadata": {"managedFields": [entry]}, "spec": {"suspend": True}})


def uid_of(train: TrainBench) -> str:
    """Of the Job; empty while there is none."""
    return next((train.api.objects[path]["metadata"]["uid"] for path in train.api.paths("/jobs/")), "")


def resumes(bench: ControllerBench) -> list[str]:
    """A suspended Job is replaced by one that runs."""
    return [each.path for each in bench.api.sent if each.method == "DELETE" and each.path.startswith(JOB_PATH)]


def wake(bench: ControllerBench | TrainBench, is_fulfilled: Callable[[], bool]) -> None:
    """Syncs after own writes, and when the last sync has asked for it."""
    for _ in range(20):
        sent = len(bench.api.sent)
        outcome = bench.sync()
        if is_fulfilled():
            return
        if len(bench.api.sent) == sent:
            assert isinstance(outcome, RequeueAfter)
            bench.clock.advance(outcome.seconds)
    raise AssertionError("not within 20 syncs")


def fight(bench: ControllerBench, *replicas: str) -> None:
    """The others suspend the Jobs every second; the controller syncs after each of their writes."""
    for _ in range(FIGHT_SECONDS):
        suspend(bench, *replicas)
        bench.sync()
        bench.clock.advance(1)


def test_jobs_that_a_queue_keeps_suspending_are_resumed_ever_less_often(bench: ControllerBench) -> None:
    fight(bench, "master-0", "worker-0", "worker-1")
    assert len(resumes(bench)) == 3 * 5
    reverted = [each for each in bench.recorder.events if each[1] == "ChangeReverted"]
    (event,) = reverted
    assert event[0] == "Warning"
    assert f"keeps suspending Job {bench.child('master-0')} (and 2 more)" in event[2]
    assert (condition(bench)["status"], condition(bench)["message"]) == ("True", event[2])
    assert event[2] in bench.status["reason"]


def test_a_field_that_the_api_server_attributes_to_the_controller_was_changed_at_admission(
    bench: ControllerBench,
) -> None:
    for _ in range(10):
        suspend(bench, "worker-0", manager="tfjob-controller")
        bench.sync()
    assert condition(bench)["message"].startswith("an admission webhook keeps suspending Job")


def test_a_suspended_set_is_replaced_by_syncs_that_writes_or_the_last_sync_have_caused() -> None:
    """A status that is delayed, and that the next suspension takes back, is never written, so that no event tells."""
    train = TrainBench()
    train.create()
    train.settle()
    for _ in range(2):
        (path,) = train.api.paths("/jobs/")
        uid = train.api.change(path, {"spec": {"suspend": True}})["metadata"]["uid"]
        wake(train, lambda old=uid: uid_of(train) not in ("", old))
    train.api.change(path, {"spec": {"suspend": True}})
    wake(train, lambda: condition(train).get("status") == "True")


def test_the_other_client_is_asked_for_once(bench: ControllerBench) -> None:
    path = f"{JOB_PATH}/{bench.child('master-0')}"
    fight(bench, "master-0")
    assert [each.path for each in bench.api.sent if each.method == "GET" and each.path.startswith(JOB_PATH)] == [path]
    assert condition(bench)["message"].startswith("another client (a-queue) keeps suspending Job")


def test_it_is_over_once_a_resume_is_kept(bench: ControllerBench) -> None:
    for _ in range(5):
        suspend(bench, "master-0")
        bench.sync()
        bench.clock.advance(1)
    assert condition(bench)["status"] == "True"
    wake(bench, lambda: len(resumes(bench)) == 3)
    wake(bench, lambda: condition(bench)["status"] == "False")
    assert condition(bench)["status"] == "False"
    assert condition(bench)["reason"] == "ChangesAccepted"


def test_a_restarted_process_does_not_begin_the_fight_anew(bench: ControllerBench) -> None:
    for _ in range(5):
        suspend(bench, "master-0")
        bench.sync()
    before = len(resumes(bench))
    bench.reconciler = bench.new_reconciler()
    for _ in range(int(FIRST_DELAY_SECONDS) - 1):
        suspend(bench, "master-0")
        bench.sync()
        bench.clock.advance(1)
    assert len(resumes(bench)) == before
    assert [each[1] for each in bench.recorder.events].count("ChangeReverted") == 1


def test_services_that_somebody_keeps_deleting_are_recreated_ever_less_often(bench: ControllerBench) -> None:
    path = f"{SERVICE_PATH}/{bench.child('worker-1')}"
    for _ in range(FIGHT_SECONDS):
        if path in bench.api.objects:
            bench.api.remove(path)
        assert not isinstance(bench.sync(), Retry)
        bench.clock.advance(1)
    assert (
        sum(
            each.method == "POST" and each.body["metadata"]["name"] == bench.child("worker-1")
            for each in bench.api.sent
        )
        == 2 + 5
    )
    assert f"keeps deleting (or relabelling) Service {bench.child('worker-1')}" in condition(bench)["message"]


def test_a_job_that_its_user_suspends_and_resumes_often_is_followed_each_time(bench: ControllerBench) -> None:
    for _ in range(10):
        for is_suspended in (True, False):
            bench.api.change(f"{TFJOB_PATH}/example-job", {"spec": {"suspend": is_suspended}})
            bench.settle()
    assert len(resumes(bench)) == 3 * 10
    assert condition(bench) == {}
