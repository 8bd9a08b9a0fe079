"""The rules of a sync: what it writes, how often, in which order, and what it never does."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn

import pytest

from helpers.controllerbench import (
    CONFIG_MAP_PATH,
    JOB_PATH,
    POD_PATH,
    SERVICE_PATH,
    TFJOB_PATH,
    ControllerBench,
)
from helpers.manifests import master, tfjob, workers
from tfjob_controller.api.common.core import PODS
from tfjob_controller.controller.outcome import DONE, NOT_FOUND, Done, Outcome, RequeueAfter, Retry, TerminalFailure
from tfjob_controller.controller.reconciler import YIELD_SECONDS
from tfjob_controller.controller.reporter import MAX_DEBOUNCE_SECONDS
from tfjob_controller.jobs.evaluation.silence import SILENT_SECONDS
from tfjob_controller.jobs.plan.model import Plan, Replica, UnplannableError
from tfjob_controller.kinds.tfjob.kind import TFJOB_DEBOUNCE_SECONDS


@pytest.fixture
def bench() -> ControllerBench:
    return ControllerBench()


def test_the_tutorials_job_gets_a_job_and_a_service_for_each_replica(bench: ControllerBench) -> None:
    bench.create()
    bench.settle()
    wanted = [bench.child(replica) for replica in ("master-0", "ps-0", "ps-1", "worker-0")]
    assert bench.api.paths("/jobs/") == [f"{JOB_PATH}/{name}" for name in wanted]
    assert bench.api.paths("/services/") == [f"{SERVICE_PATH}/{name}" for name in wanted]
    assert bench.api.paths("/configmaps/") == [f"{CONFIG_MAP_PATH}/cm-ps-{bench.runtime_id}"]
    assert bench.status["phase"] == "Creating"
    assert bench.status["controlPaused"] is False


def test_the_runtime_id_is_written_before_the_first_child(bench: ControllerBench) -> None:
    bench.create()
    bench.sync()
    first, *others = bench.api.sent
    assert (first.method, list(first.body["spec"])) == ("PATCH", ["RuntimeId"])
    assert {sent.method for sent in others[:9]} == {"POST"}


def test_a_runtime_id_that_somebody_wrote_over_is_tried_again(bench: ControllerBench) -> None:
    bench.create()
    bench.api.hold()
    bench.api.change(f"{TFJOB_PATH}/example-job", {"metadata": {"labels": {"a": "b"}}})
    assert isinstance(bench.sync(), Retry)
    assert bench.api.paths("/jobs/") == []
    bench.api.release()
    bench.settle()
    assert len(bench.api.paths("/jobs/")) == 4


def test_the_next_sync_knows_what_the_last_one_wrote_though_the_watch_lags(bench: ControllerBench) -> None:
    bench.create()
    bench.api.hold()
    bench.sync()
    sent = len(bench.api.sent)
    bench.sync()
    assert len(bench.api.sent) == sent


def test_a_job_with_nothing_to_do_costs_no_request(bench: ControllerBench) -> None:
    bench.create()
    bench.settle_minor()
    sent = len(bench.api.sent)
    assert isinstance(bench.sync(), Done | RequeueAfter)
    assert len(bench.api.sent) == sent


def test_a_job_of_n_replicas_takes_two_requests_for_each_and_six_more(bench: ControllerBench) -> None:
    bench.create()
    bench.settle()
    for replica in ("ps-0", "master-0", "worker-0", "ps-1"):
        bench.runs(replica)
        bench.settle()
    bench.exits("worker-0", 0)
    bench.settle()
    bench.exits("master-0", 0)
    bench.settle()
    for path in bench.api.paths("/pods/"):
        if "-ps-" in path:
            bench.api.remove(path)
    bench.settle()
    assert (bench.status["phase"], bench.status["state"]) == ("Done", "Succeeded")
    cleaning = [sent for sent in bench.api.sent if sent.body.get("spec", {}).get("suspend")]
    assert len(cleaning) == 2  # each PS that still runs has to be stopped
    assert len(bench.api.sent) - len(cleaning) <= 2 * 4 + 6


def test_a_finished_job_costs_nothing_ever_again_also_in_another_process(bench: ControllerBench) -> None:
    bench.create(master())
    bench.settle()
    bench.runs("master-0")
    bench.settle()
    bench.exits("master-0", 0)
    bench.settle()
    assert bench.status["phase"] == "Done"
    sent = len(bench.api.sent)
    bench.reconciler = bench.new_reconciler()
    bench.api.remove(f"{JOB_PATH}/{bench.child('master-0')}")
    assert bench.sync() == DONE
    assert len(bench.api.sent) == sent
    assert bench.reconciler.tracked_jobs == 0


def test_what_a_finished_job_has_left_is_stopped_when_a_kubelet_starts_it_again(bench: ControllerBench) -> None:
    bench.create(master(), workers(1), cleanPodPolicy="None")
    bench.settle()
    for each in ("master-0", "worker-0"):
        bench.runs(each)
    bench.settle()
    bench.exits("master-0", 0)
    bench.settle()
    assert bench.status["phase"] == "Done"
    sent = len(bench.api.sent)
    bench.sync()
    assert len(bench.api.sent) == sent
    bench.clock.advance(5)
    bench.restarts("worker-0")
    bench.sync()
    assert [each.body for each in bench.api.sent[sent:]] == [{"spec": {"suspend": True}}]


def test_a_finished_job_is_deleted_when_its_time_to_live_is_over(bench: ControllerBench) -> None:
    bench.create(master(), ttlSecondsAfterFinished=60)
    bench.settle()
    bench.exits("master-0", 0)
    outcome = bench.settle()
    assert isinstance(outcome, RequeueAfter)
    assert 0 < outcome.seconds <= 60
    bench.clock.advance(61)
    assert bench.sync() == DONE
    assert bench.api.paths("/tfjobs/") == []


def expire(bench: ControllerBench) -> None:
    """Bring the job to its end, and let its time to live pass."""
    bench.settle()
    bench.exits("master-0", 0)
    bench.settle()
    bench.clock.advance(61)


def test_a_finished_job_is_deleted_once_even_if_its_children_are_deleted_before_its_watch_event(
    bench: ControllerBench,
) -> None:
    bench.create(master(), ttlSecondsAfterFinished=60)
    expire(bench)
    bench.api.hold()
    assert bench.sync() == DONE
    assert bench.sync() == DONE
    assert len(bench.api.requests("DELETE", "/tfjobs/")) == 1
    bench.api.release()
    assert bench.sync() == NOT_FOUND


def test_a_deletion_that_failed_is_requested_again_and_the_next_job_of_that_name_is_deleted_too(
    bench: ControllerBench,
) -> None:
    bench.create(master(), ttlSecondsAfterFinished=60)
    expire(bench)
    bench.api.fail(503, "ServiceUnavailable", method="DELETE", part="/tfjobs/")
    assert isinstance(bench.sync(), Retry)
    assert bench.sync() == DONE
    # No sync sees the time between the two jobs.
    bench.create(master(), ttlSecondsAfterFinished=60)
    expire(bench)
    assert bench.sync() == DONE
    assert bench.api.paths("/tfjobs/") == []
    assert len(bench.api.requests("DELETE", "/tfjobs/")) == 3


def test_events_come_after_the_status_that_they_speak_of(bench: ControllerBench) -> None:
    bench.create()
    bench.sync()
    status_write = next(i for i, sent in enumerate(bench.api.sent, 1) if sent.path.endswith("/status"))
    assert min(bench.recorder.requests_before) >= status_write
    created = [note for _, reason, note in bench.recorder.events if reason == "SuccessfulCreate"]
    (note,) = created
    assert all(part in note for part in ("4 Jobs", "4 Services", "1 ConfigMap", bench.child("ps-1")))
    assert f"cm-ps-{bench.runtime_id}" in note


def test_an_event_of_a_status_that_was_not_written_is_not_emitted(bench: ControllerBench) -> None:
    bench.create()
    bench.settle()
    bench.runs("master-0")
    bench.recorder.events.clear()
    bench.api.fail(500, "InternalError", method="PATCH", part="/status")
    assert isinstance(bench.sync(), Retry)
    assert bench.recorder.events == []
    bench.sync()
    assert [reason for _, reason, _ in bench.recorder.events] == ["Running"]


def test_an_invalid_job_fails_with_the_reason_and_has_no_children(bench: ControllerBench) -> None:
    bench.create(workers(1), terminationPolicy={"chief": {"replicaName": "MASTER"}})
    assert isinstance(bench.sync(), TerminalFailure)
    assert bench.status["phase"] == bench.status["state"] == "Failed"
    assert bench.status["reason"] == "invalid job spec: Missing ReplicaSpec for chief: MASTER"
    assert [sent.method for sent in bench.api.sent] == ["PATCH"]
    assert [type_ for type_, _, _ in bench.recorder.events] == ["Warning"]
    assert bench.sync() == DONE
    assert len(bench.api.sent) == 1


def test_a_change_of_what_is_fixed_fails_the_job_where_the_crd_let_it_through(bench: ControllerBench) -> None:
    bench.create()
    bench.settle()
    changed = tfjob(master(tfPort=3333), workers(), *bench.job["spec"]["replicaSpecs"][2:])
    bench.api.change(f"{TFJOB_PATH}/example-job", {"spec": {"replicaSpecs": changed["spec"]["replicaSpecs"]}})
    assert isinstance(bench.sync(), TerminalFailure)
    assert "the ports of a started job cannot change" in bench.status["reason"]


def running(bench: ControllerBench) -> list[str]:
    """Child Jobs that are not suspended."""
    paths = bench.api.paths("/jobs/")
    return [path for path in paths if not bench.api.objects[path]["spec"].get("suspend")]


def make_invalid(bench: ControllerBench) -> None:
    """As only an older CRD lets it through."""
    bench.api.change(f"{TFJOB_PATH}/example-job", {"spec": {"replicaSpecs": [workers()]}})


def test_a_running_job_that_becomes_invalid_stops_its_children(bench: ControllerBench) -> None:
    bench.create(master(), workers(2))
    bench.settle()
    bench.exits("worker-1", 0)
    bench.runs("master-0")
    bench.settle()
    make_invalid(bench)
    assert isinstance(bench.sync(), TerminalFailure)
    assert bench.status["phase"] == "Failed"
    assert running(bench) == [f"{JOB_PATH}/{bench.child('worker-1')}"]  # complete, its result stays


def test_a_refused_job_has_not_ended_before_its_children_are_stopped(bench: ControllerBench) -> None:
    bench.create(master(), workers(2))
    bench.settle()
    make_invalid(bench)
    bench.api.fail(503, "ServiceUnavailable", method="PATCH", part="/jobs")
    assert isinstance(bench.sync(), Retry)
    assert bench.status["phase"] == "Creating"
    bench.settle()
    assert bench.status["phase"] == "Failed"
    assert running(bench) == []


def test_a_verdict_stands_also_when_the_spec_becomes_invalid(bench: ControllerBench) -> None:
    bench.create(master(), workers(1))
    bench.settle()
    bench.runs("worker-0")
    bench.exits("master-0", 0)
    bench.sync()
    assert (bench.status["phase"], bench.status["state"]) == ("CleanUp", "Succeeded")
    make_invalid(bench)
    bench.settle()
    assert (bench.status["phase"], bench.status["state"]) == ("Done", "Succeeded")
    assert running(bench) == [f"{JOB_PATH}/{bench.child('master-0')}"]


def test_a_success_that_waits_to_be_written_outlives_a_change_of_the_spec(bench: ControllerBench) -> None:
    bench.create(master(), workers(2))
    bench.settle_minor()
    bench.runs("master-0")
    bench.settle_minor()
    bench.exits("worker-1", 0)
    bench.sync()
    assert "succeededIndexes" not in bench.status  # mere figures wait
    bench.api.change(f"{TFJOB_PATH}/example-job", {"spec": {"backoffLimit": 7}})
    bench.api.remove(f"{JOB_PATH}/{bench.child('worker-1')}")
    bench.api.remove(f"{POD_PATH}/{bench.child('worker-1')}-x")
    bench.settle_minor()
    assert bench.status["succeededIndexes"] == ["worker-1"]
    assert f"{JOB_PATH}/{bench.child('worker-1')}" not in bench.api.objects


def test_figures_alone_wait_for_each_other_and_go_along_with_the_next_phase(bench: ControllerBench) -> None:
    bench.create(master(), workers(3))
    bench.settle()
    bench.runs("master-0")
    bench.settle()
    sent = len(bench.api.sent)
    for replica in ("worker-0", "worker-1", "worker-2"):
        bench.runs(replica)
        outcome = bench.sync()
        assert isinstance(outcome, RequeueAfter)
        assert 0 < outcome.seconds <= TFJOB_DEBOUNCE_SECONDS
    assert len(bench.api.sent) == sent
    bench.clock.advance(TFJOB_DEBOUNCE_SECONDS)
    bench.sync()
    assert len(bench.api.sent) == sent + 1
    assert bench.status["ready"] == {"master": "1/1", "worker": "3/3"}


def test_a_success_that_waits_to_be_written_outlives_a_failed_write(bench: ControllerBench) -> None:
    bench.create(master(), workers(2))
    bench.settle()
    bench.runs("master-0")
    bench.settle_minor()
    bench.exits("worker-1", 0)
    bench.sync()
    bench.clock.advance(TFJOB_DEBOUNCE_SECONDS)
    bench.api.fail(500, "InternalError", method="PATCH", part="/status")
    assert isinstance(bench.sync(), Retry)
    bench.api.remove(f"{JOB_PATH}/{bench.child('worker-1')}")
    bench.api.remove(f"{POD_PATH}/{bench.child('worker-1')}-x")
    bench.settle()
    assert bench.status["succeededIndexes"] == ["worker-1"]
    assert f"{JOB_PATH}/{bench.child('worker-1')}" not in bench.api.objects


def test_a_status_that_was_written_without_an_answer_is_not_taken_back(bench: ControllerBench) -> None:
    bench.create(master(), workers(2))
    bench.settle()
    bench.runs("master-0")
    bench.settle()
    bench.runs("worker-0")
    bench.sync()  # figures wait
    bench.exits("master-0", 0)
    bench.api.fail(0, "Timeout", method="PATCH", part="/status", carried_out=True, outcome_unknown=True)
    assert isinstance(bench.sync(), Retry)
    written = bench.status
    assert written["phase"] == "CleanUp"
    bench.clock.advance(30.0)
    bench.settle()
    assert bench.status["completionTime"] == written["completionTime"]
    assert len([sent for sent in bench.api.sent if sent.body.get("status", {}).get("phase") == "CleanUp"]) == 1


def test_replicas_that_come_one_by_one_do_not_cost_a_write_each(bench: ControllerBench) -> None:
    bench.create(master(), workers(60))
    bench.settle()
    bench.runs("master-0")
    bench.settle()
    sent = len(bench.api.sent)
    for index in range(60):
        bench.runs(f"worker-{index}")
        bench.sync()
        bench.clock.advance(1.0)
        bench.sync()
    assert 3 <= len(bench.api.sent) - sent <= 9
    bench.clock.advance(MAX_DEBOUNCE_SECONDS)
    bench.sync()
    assert bench.status["ready"]["worker"] == "60/60"


def test_while_other_jobs_wait_children_are_created_first_and_the_status_is_written_later(
    bench: ControllerBench,
) -> None:
    bench.is_busy = True
    bench.create()
    assert bench.sync() == RequeueAfter(YIELD_SECONDS)
    assert len(bench.api.requests("POST")) == 9
    assert bench.status == {}
    assert bench.recorder.events == []
    bench.sync()
    assert bench.status["phase"] == "Creating"
    assert len([reason for _, reason, _ in bench.recorder.events if reason == "SuccessfulCreate"]) == 1


def test_a_job_shrinks_once_however_many_wait(bench: ControllerBench) -> None:
    bench.is_busy = True
    bench.create(master())
    bench.sync()
    bench.api.remove(f"{SERVICE_PATH}/{bench.child('master-0')}")
    bench.sync()
    assert bench.status["phase"] == "Creating"
    assert len([reason for _, reason, _ in bench.recorder.events if reason == "SuccessfulCreate"]) == 2


def each_write_takes(bench: ControllerBench, seconds: float) -> None:
    for collection in ("jobs", "services"):
        bench.api.watch(collection, lambda *_: bench.clock.advance(seconds))


def test_a_job_that_has_written_for_long_lets_others_go_first_and_goes_on_later(bench: ControllerBench) -> None:
    bench.is_busy = True
    each_write_takes(bench, 0.2)
    bench.create(master(), workers(100))
    posts = []
    while bench.status == {}:
        before = len(bench.api.requests("POST"))
        bench.sync()
        posts.append(len(bench.api.requests("POST")) - before)
        assert len(posts) < 1000
    assert sum(posts) == 2 * 101
    assert max(posts) <= 3
    events = [reason for _, reason, _ in bench.recorder.events if reason == "SuccessfulCreate"]
    assert len(events) == sum(count > 0 for count in posts), "one for each sync that created children"


def test_a_job_writes_all_at_once_while_nobody_waits(bench: ControllerBench) -> None:
    each_write_takes(bench, 0.2)
    bench.create(master(), workers(100))
    bench.sync()
    assert len(bench.api.requests("POST")) == 2 * 101


def test_an_obstacle_is_reported_at_once_also_while_other_jobs_wait(bench: ControllerBench) -> None:
    bench.is_busy = True
    bench.create(master())
    bench.api.fail(403, "Forbidden", method="POST", part="/services")
    assert isinstance(bench.sync(), Retry)
    assert "cannot create Service" in bench.status["reason"]


def test_the_start_and_the_end_of_a_job_are_counted_once(bench: ControllerBench) -> None:
    bench.create(master())
    bench.settle()
    bench.runs("master-0")
    bench.clock.advance(3.0)
    bench.settle()
    bench.exits("master-0", 0)
    bench.clock.advance(10.0)
    bench.settle()
    assert [said[0] for said in bench.counted.said] == ["created", "running", "finished"]
    assert bench.counted.said[1] == ("running", 3.0)
    assert bench.counted.said[2][1] == "Succeeded"


@pytest.mark.parametrize(
    ("deleted", "outcome"),
    [
        pytest.param(lambda bench: bench.api.remove(f"{TFJOB_PATH}/example-job"), NOT_FOUND, id="gone"),
        pytest.param(
            lambda bench: bench.api.change(
                f"{TFJOB_PATH}/example-job", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
            ),
            DONE,
            id="going",
        ),
    ],
)
def test_a_deleted_job_is_left_to_the_garbage_collector_and_forgotten(
    bench: ControllerBench, deleted: object, outcome: Outcome
) -> None:
    bench.create()
    bench.settle()
    sent = len(bench.api.sent)
    deleted(bench)  # type: ignore[operator]  # pytest gives objects
    assert bench.sync() == outcome
    assert len(bench.api.sent) == sent
    assert bench.reconciler.tracked_jobs == 0


class RefusesLater:
    """A kind whose plans say only then that they cannot be carried out when the first child is made."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)

    def plan(self, job: Any) -> Plan:
        return dataclasses.replace(self._kind.plan(job), environment=self._refuse)

    def _refuse(self, replica: Replica) -> NoReturn:
        raise UnplannableError(f"nobody knows the address of {replica.id}")


def test_a_plan_that_cannot_build_a_child_ends_the_job_with_its_message(bench: ControllerBench) -> None:
    bench.reconciler._kind = RefusesLater(bench.reconciler._kind)
    bench.create()
    assert isinstance(bench.settle(), TerminalFailure | Done)
    assert bench.api.paths("/jobs/") == []
    assert bench.status["phase"] == "Failed"
    assert bench.status["reason"] == "invalid job spec: nobody knows the address of master-0"


def test_another_job_of_the_same_name_is_planned_again_though_nobody_saw_the_first_one_go(
    bench: ControllerBench,
) -> None:
    bench.create(workers(1))
    bench.settle()
    assert len(bench.api.paths("/jobs/")) == 1
    for path in [f"{TFJOB_PATH}/example-job", *bench.api.paths("/jobs/"), *bench.api.paths("/services/")]:
        bench.api.remove(path)
    bench.create(workers(3))
    bench.settle()
    assert len(bench.api.paths("/jobs/")) == 3


def test_the_job_of_another_controller_is_not_touched(bench: ControllerBench) -> None:
    bench.create(master(), managedBy="kueue.x-k8s.io/multikueue")
    assert bench.sync() == Done()
    assert bench.api.sent == []


def test_the_reason_of_a_pod_that_does_not_start_is_its_newest_warning(bench: ControllerBench) -> None:
    bench.create(master())
    bench.settle()
    bench.hangs("master-0")
    (pod,) = bench.caches.store(PODS).list()
    bench.warnings[pod.metadata.uid] = 'FailedMount: secret "keys" not found'
    bench.settle_minor()
    assert not bench.status.get("reason")
    bench.clock.advance(SILENT_SECONDS)
    bench.settle_minor()
    assert bench.status["reason"] == 'master-0: FailedMount: secret "keys" not found'
    bench.runs("master-0")
    bench.settle_minor()
    assert not bench.status.get("reason")
