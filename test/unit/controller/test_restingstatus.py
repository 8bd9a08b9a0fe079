"""The rules of controller/restingstatus.py: how long mere figures wait before they are written."""

from __future__ import annotations

from msgspec.structs import replace

from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.controller.restingstatus import MINOR_DELAY_CAP_SECONDS, RestingStatus
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.trainer.status import StatusResult
from tfjob_controller.trainer.work import PlainWork

WRITTEN = TrainingStatus(phase="Running", state="Running")
WORK = PlainWork(ObjectMeta(name="train"), WRITTEN, 60)
# Who is ready is a figure, the phase is not.
FIGURES = StatusResult(replace(WRITTEN, worker_replicas=2))
SUBSTANCE = StatusResult(replace(WRITTEN, phase="CleanUp"))


def test_substance_does_not_rest() -> None:
    assert RestingStatus(2.0).rest_seconds(WORK, SUBSTANCE, 100.0) == 0


def test_figures_rest_from_the_first_time_that_they_differ() -> None:
    resting = RestingStatus(2.0)
    assert [resting.rest_seconds(WORK, FIGURES, now) for now in (100.0, 101.5, 102.0, 110.0)] == [2.0, 0.5, 0.0, 0.0]


def test_what_rests_counts_as_written_until_the_job_says_something_else() -> None:
    resting = RestingStatus(2.0)
    assert resting.current(WORK) is WORK
    resting.rest_seconds(WORK, FIGURES, 100.0)
    assert resting.current(WORK).status == FIGURES.status
    assert resting.current(WORK).ttl_seconds_after_finished == 60
    changed = PlainWork(WORK.metadata, SUBSTANCE.status, None)
    assert resting.current(changed) is changed
    assert resting.current(WORK) is WORK


def test_where_nothing_differs_any_more_nothing_rests() -> None:
    resting = RestingStatus(2.0)
    resting.rest_seconds(WORK, FIGURES, 100.0)
    resting.drop()
    assert resting.current(WORK) is WORK
    assert resting.rest_seconds(WORK, FIGURES, 105.0) == 2.0


def test_each_write_of_figures_alone_doubles_the_rest_up_to_a_cap_and_substance_starts_over() -> None:
    resting = RestingStatus(1.5)
    rests = []
    for now in (100.0, 200.0, 300.0, 400.0, 500.0):
        rests.append(resting.rest_seconds(WORK, FIGURES, now))
        resting.written(WORK, FIGURES)
    assert rests == [1.5, 3.0, 6.0, MINOR_DELAY_CAP_SECONDS, MINOR_DELAY_CAP_SECONDS]
    resting.written(WORK, SUBSTANCE)
    assert resting.rest_seconds(WORK, FIGURES, 600.0) == 1.5
