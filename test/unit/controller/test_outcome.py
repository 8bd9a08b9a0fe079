"""What each refusal of the API server means to a job: the table in controller/outcome.py, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.controllerbench import JOB_PATH, SERVICE_PATH, ControllerBench
from helpers.manifests import master, parameter_servers, workers
from tfjob_controller.controller.outcome import DONE, Retry, TerminalFailure
from tfjob_controller.kinds.tfjob.kind import TFJOB_DEBOUNCE_SECONDS


@pytest.fixture
def bench() -> ControllerBench:
    return ControllerBench()


QUOTA = 'jobs.batch "x" is forbidden: exceeded quota: small, requested: count/jobs.batch=1, used: 0, limited: 0'

PASSING: list[Any] = [
    pytest.param({"status": 403, "reason": "Forbidden", "message": QUOTA}, False, id="quota"),
    pytest.param({"status": 403, "reason": "Forbidden", "message": "User x cannot create jobs"}, False, id="rights"),
    pytest.param({"status": 404, "reason": "NotFound", "message": "namespaces team not found"}, False, id="namespace"),
    pytest.param(
        {
            "status": 403,
            "reason": "Forbidden",
            "message": "unable to create new content in namespace team because it is being terminated",
            "cause_reasons": ("NamespaceTerminating",),
        },
        False,
        id="namespace terminating",
    ),
    pytest.param({"status": 429, "reason": "TooManyRequests", "message": "busy"}, True, id="too many requests"),
    pytest.param({"status": 503, "reason": "ServiceUnavailable", "message": "starting"}, True, id="unavailable"),
    pytest.param({"status": 0, "reason": "Timeout", "message": "no answer in time"}, True, id="no answer"),
    pytest.param(
        {"status": 400, "reason": "BadRequest", "message": 'admission webhook "x" denied the request: later'},
        False,
        id="a webhook's refusal",
    ),
]

STRICT = 'Job in version "v1" cannot be handled as a Job: strict decoding error'
UNKNOWN = 'unknown field "spec.template.spec.nodeSelectr"'

PERMANENT: list[Any] = [
    pytest.param({"status": 422, "reason": "Invalid", "message": "spec.template: bad"}, id="invalid"),
    pytest.param(
        {"status": 400, "reason": "BadRequest", "message": f"{STRICT}: {UNKNOWN}"}, id="a field that it does not know"
    ),
    pytest.param({"status": 413, "reason": "RequestEntityTooLarge", "message": "limit is 3145728"}, id="too large"),
]


@pytest.mark.parametrize(("error", "is_error"), PASSING)
def test_what_passes_shows_as_the_reason_and_is_tried_again(
    bench: ControllerBench, error: dict[str, Any], is_error: bool
) -> None:
    bench.create(master())
    bench.api.fail(**error, method="POST", part="/jobs")
    outcome = bench.sync()
    assert isinstance(outcome, Retry)
    assert outcome.is_error == is_error
    assert error["message"] in bench.status["reason"]
    assert bench.status["phase"] == "Creating"
    assert ("Warning", "FailedCreate", outcome.message) in bench.recorder.events
    bench.settle_minor()
    assert "reason" not in bench.status
    assert len(bench.api.paths("/jobs/")) == len(bench.api.paths("/services/")) == 1


@pytest.mark.parametrize("error", PERMANENT)
def test_a_permanent_error_of_the_server_ends_the_job_with_its_message(
    bench: ControllerBench, error: dict[str, Any]
) -> None:
    bench.create(master(), workers(2))
    bench.api.fail(**error, method="POST", part="-worker-", times=99)
    assert isinstance(bench.sync(), TerminalFailure)
    bench.settle()
    assert bench.status["phase"] == bench.status["state"] == "Failed"
    assert error["message"].removeprefix(f"{STRICT}: ") in bench.status["reason"]
    sent = len(bench.api.sent)
    bench.sync()
    assert len(bench.api.sent) == sent


def test_the_reason_of_an_unknown_field_names_the_child_and_the_field_once(bench: ControllerBench) -> None:
    bench.create(master())
    bench.api.fail(400, "BadRequest", f"{STRICT}: {UNKNOWN}", method="POST", part="/jobs")
    assert bench.sync() == TerminalFailure(f"cannot create Job {bench.child('master-0')}: {UNKNOWN}")


def test_only_children_with_fields_of_users_are_created_strictly(bench: ControllerBench) -> None:
    bench.create(master(), parameter_servers(1))
    bench.sync()
    creates = bench.api.requests("POST")
    validation = {sent.path.rpartition("/")[2]: sent.query.get("fieldValidation") for sent in creates}
    assert validation == {"jobs": "Strict", "services": None, "configmaps": None}


@pytest.mark.parametrize("carried_out", [pytest.param(True, id="it was done"), pytest.param(False, id="it was not")])
def test_a_create_whose_answer_was_lost_makes_no_second_child(bench: ControllerBench, carried_out: bool) -> None:
    bench.create(master())
    bench.api.hold()  # the watch does not tell either
    bench.api.fail(0, "Timeout", method="POST", part="/jobs", carried_out=carried_out, outcome_unknown=True)
    assert isinstance(bench.sync(), Retry)
    bench.sync()
    bench.api.release()
    bench.settle_minor()
    assert len(bench.api.paths("/jobs/")) == 1
    assert bench.status["phase"] == "Creating"
    assert "reason" not in bench.status


def test_a_foreign_object_is_named_and_not_touched(bench: ControllerBench) -> None:
    bench.create(master())
    bench.api.fail(403, "Forbidden", method="POST")
    bench.sync()
    name = bench.child("master-0")
    foreign = bench.api.put(SERVICE_PATH, {"metadata": {"name": name, "namespace": "team"}, "spec": {"mine": True}})
    assert isinstance(bench.sync(), Retry)
    bench.clock.advance(TFJOB_DEBOUNCE_SECONDS)
    assert isinstance(bench.sync(), Retry)
    assert f"Service {name} exists already and is not this job's" in bench.status["reason"]
    assert any(f"Service {name}" in note for _, reason, note in bench.recorder.events if reason == "FailedCreate")
    assert bench.api.objects[f"{SERVICE_PATH}/{name}"] == foreign
    bench.api.remove(f"{SERVICE_PATH}/{name}")
    bench.settle_minor()
    assert "reason" not in bench.status
    assert "mine" not in bench.api.objects[f"{SERVICE_PATH}/{name}"]["spec"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param(409, "Conflict", id="somebody wrote first"),
        pytest.param(422, "Invalid", id="an older CRD"),
    ],
)
def test_a_status_that_cannot_be_written_is_tried_again(bench: ControllerBench, status: int, reason: str) -> None:
    bench.create(master())
    bench.api.fail(status, reason, method="PATCH", part="/status")
    assert isinstance(bench.sync(), Retry)
    bench.settle_minor()
    assert bench.status["phase"] == "Creating"
    assert len(bench.api.requests("POST")) == 2


def test_a_job_that_went_away_in_the_middle_of_a_sync_is_done(bench: ControllerBench) -> None:
    bench.create(master())
    bench.api.fail(404, "NotFound", method="PATCH", part="/status")
    assert bench.sync() == DONE


def test_a_server_with_retry_after_gets_no_request_before_it(bench: ControllerBench) -> None:
    bench.create(master())
    bench.api.fail(429, "TooManyRequests", method="POST", part="/jobs", retry_after_seconds=7.0)
    outcome = bench.sync()
    assert isinstance(outcome, Retry)
    assert outcome.after_seconds == 7.0


def test_a_deadline_does_not_wait_for_the_rate_limiter(bench: ControllerBench) -> None:
    bench.create(master(), activeDeadlineSeconds=60)
    bench.settle_minor()
    bench.api.remove(f"{JOB_PATH}/{bench.child('master-0')}")
    bench.api.fail(403, "Forbidden", QUOTA, method="POST")
    outcome = bench.sync()
    assert isinstance(outcome, Retry)
    assert outcome.wake_after_seconds is not None
    assert outcome.wake_after_seconds <= 60


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param(409, "Conflict", id="another job has the name"),
        pytest.param(404, "NotFound", id="it is gone"),
    ],
)
def test_a_finished_job_that_is_gone_when_it_is_to_be_deleted_is_done(
    bench: ControllerBench, status: int, reason: str
) -> None:
    bench.create(master(), ttlSecondsAfterFinished=60)
    bench.settle()
    bench.exits("master-0", 0)
    bench.settle()
    bench.clock.advance(61)
    bench.api.fail(status, reason, method="DELETE", part="/tfjobs")
    assert bench.sync() == DONE
