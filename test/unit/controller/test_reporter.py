"""The rules of controller/reporter.py: what people are told of a sync."""

from __future__ import annotations

from msgspec.structs import replace

from tfjob_controller.api.common.core import CONFIG_MAPS, JOBS, SERVICES, BatchJob
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.controller.outcome import Fault
from tfjob_controller.controller.reporter import MAX_DEBOUNCE_SECONDS, Reporter, StatusDebounce
from tfjob_controller.controller.writer import WriteResult
from tfjob_controller.jobs.actions.model import Create, Delete
from tfjob_controller.jobs.conditions import StatusEvent
from tfjob_controller.jobs.status.update import StatusResult
from tfjob_controller.jobs.trainingjob import TrainingJob, TrainingStatus
from tfjob_controller.kube.events.series import ObjectReference
from tfjob_controller.kube.meta import ObjectMeta

JOB = BatchJob(ObjectMeta(name="train", namespace="team", uid="u1", resource_version="7"))


class Recorded:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []
        self.regarding: list[ObjectReference] = []

    def event(self, regarding: ObjectReference, type_: str, reason: str, note: str, action: str = "") -> None:
        self.regarding.append(regarding)
        self.events.append((type_, reason, note, action))


def told(report: WriteResult) -> list[tuple[str, str, str, str]]:
    recorded = Recorded()
    Reporter(TFJOBS, recorded).report_writes(JOB, report)
    return recorded.events


def test_creates_deletions_and_failures_have_one_event_each() -> None:
    report = WriteResult(
        created=[
            Create(CONFIG_MAPS, "b", {}),
            *(Create(kind, name, {}) for name in ("a", "c") for kind in (JOBS, SERVICES)),
        ],
        deleted=[Delete(SERVICES, "c", "u3")],
        faults=[Fault("no"), Fault("neither")],
        failed_creates=[(Create(JOBS, "d", {}), Fault("no"))],
    )
    assert told(report) == [
        ("Normal", "SuccessfulCreate", "Created 1 ConfigMap, 2 Jobs and 2 Services: b, a, c", "Create"),
        ("Normal", "SuccessfulDelete", "Deleted Service c", "Delete"),
        ("Warning", "FailedCreate", "no", "Create"),
    ]


def test_an_event_lists_at_most_ten_names() -> None:
    ((_, _, note, _),) = told(WriteResult(deleted=[Delete(JOBS, f"w-{number}", "u") for number in range(22)]))
    assert note == f"Deleted 22 Jobs: {', '.join(f'w-{number}' for number in range(10))}, and 12 more"


def test_creates_that_fail_alike_have_one_event() -> None:
    def failed(name: str, cause: str) -> tuple[Create, Fault]:
        return Create(JOBS, name, {}), Fault(f'cannot create Job {name}: Job "{name}" is {cause}')

    refused = [failed(f"w-{number}", "invalid") for number in range(50)]
    notes = [note for _, _, note, _ in told(WriteResult(failed_creates=[*refused, failed("m-0", "forbidden")]))]
    names = ", ".join(f"w-{number}" for number in range(1, 11))
    assert notes == [
        f'cannot create Job w-0: Job "w-0" is invalid (also for {names}, and 39 more)',
        'cannot create Job m-0: Job "m-0" is forbidden',
    ]


def test_only_deletions_are_reported_and_no_event_without_them() -> None:
    assert len(told(WriteResult(deleted=[Delete(JOBS, "a", "u3")]))) == 1
    assert told(WriteResult(faults=[Fault("no")])) == []


def test_events_are_about_the_job_as_it_was_read() -> None:
    recorded = Recorded()
    Reporter(TFJOBS, recorded).report_status(JOB, [StatusEvent("Normal", "Running", "it runs")])
    assert recorded.events == [("Normal", "Running", "it runs", "")]
    (reference,) = recorded.regarding
    assert (reference.kind, reference.api_version) == (TFJOBS.kind, TFJOBS.api_version)
    assert (reference.namespace, reference.name, reference.uid, reference.resource_version) == (
        "team",
        "train",
        "u1",
        "7",
    )


WRITTEN = TrainingStatus(phase="Running", state="Running")
WORK = TrainingJob(ObjectMeta(name="train"), WRITTEN, 60)
# Who is ready is a figure, the phase is not.
FIGURES = StatusResult(replace(WRITTEN, scaled_replicas=2))
SUBSTANCE = StatusResult(replace(WRITTEN, phase="CleanUp"))


def test_major_changes_are_not_delayed() -> None:
    assert StatusDebounce(2.0).remaining_seconds(WORK, SUBSTANCE, 100.0) == 0


def test_minor_changes_are_delayed_from_the_first_difference() -> None:
    debounce = StatusDebounce(2.0)
    assert [debounce.remaining_seconds(WORK, FIGURES, now) for now in (100.0, 101.5, 102.0, 110.0)] == [
        2.0,
        0.5,
        0.0,
        0.0,
    ]


def test_a_delayed_status_counts_as_written_until_the_job_changes() -> None:
    debounce = StatusDebounce(2.0)
    assert debounce.with_pending(WORK) is WORK
    debounce.remaining_seconds(WORK, FIGURES, 100.0)
    assert debounce.with_pending(WORK).status == FIGURES.status
    assert debounce.with_pending(WORK).ttl_seconds_after_finished == 60
    changed = TrainingJob(WORK.metadata, SUBSTANCE.status, None)
    assert debounce.with_pending(changed) is changed
    assert debounce.with_pending(WORK) is WORK


def test_without_a_difference_no_status_is_pending() -> None:
    debounce = StatusDebounce(2.0)
    debounce.remaining_seconds(WORK, FIGURES, 100.0)
    assert debounce.drop()
    assert not debounce.drop()
    assert debounce.with_pending(WORK) is WORK
    assert debounce.remaining_seconds(WORK, FIGURES, 105.0) == 2.0


def test_each_write_of_minor_changes_doubles_the_delay_up_to_a_cap_and_a_major_one_resets_it() -> None:
    debounce = StatusDebounce(1.5)
    rests = []
    for now in (100.0, 200.0, 300.0, 400.0, 500.0):
        rests.append(debounce.remaining_seconds(WORK, FIGURES, now))
        debounce.record_write(WORK, FIGURES)
    assert rests == [1.5, 3.0, 6.0, MAX_DEBOUNCE_SECONDS, MAX_DEBOUNCE_SECONDS]
    debounce.record_write(WORK, SUBSTANCE)
    assert debounce.remaining_seconds(WORK, FIGURES, 600.0) == 1.5
