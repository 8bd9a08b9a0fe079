"""The rules of controller/teller.py: what people are told of a sync."""

from __future__ import annotations

from tfjob_controller.api.core import CONFIG_MAPS, JOBS, SERVICES, Job
from tfjob_controller.api.tfjob import TFJOBS
from tfjob_controller.controller.faults import Fault
from tfjob_controller.controller.teller import Teller
from tfjob_controller.controller.writer import Report
from tfjob_controller.kube.events.correlator import ObjectReference
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.trainer.actions import Create, Delete
from tfjob_controller.trainer.emit import Emit

JOB = Job(ObjectMeta(name="train", namespace="team", uid="u1", resource_version="7"))


class Recorded:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []
        self.regarding: list[ObjectReference] = []

    def event(self, regarding: ObjectReference, type_: str, reason: str, note: str, action: str = "") -> None:
        self.regarding.append(regarding)
        self.events.append((type_, reason, note, action))


def told(report: Report) -> list[tuple[str, str, str, str]]:
    recorded = Recorded()
    Teller(TFJOBS, recorded).writes(JOB, report)
    return recorded.events


def test_each_child_that_was_made_deleted_or_refused_is_an_event_in_upstreams_words() -> None:
    report = Report(
        created=[Create(JOBS, "a", {}), Create(CONFIG_MAPS, "b", {})],
        deleted=[Delete(SERVICES, "c", "u3")],
        faults=[Fault("no"), Fault("neither")],
        refused=[Fault("no")],
    )
    assert told(report) == [
        ("Normal", "SuccessfulCreate", "Created job: a", "Create"),
        ("Normal", "SuccessfulCreate", "Created config map: b", "Create"),
        ("Normal", "SuccessfulDelete", "Deleted service: c", "Delete"),
        ("Warning", "FailedCreate", "no", "Create"),
    ]


def test_a_deletion_alone_is_told_and_nothing_is_told_of_nothing() -> None:
    assert len(told(Report(deleted=[Delete(JOBS, "a", "u3")]))) == 1
    assert told(Report(faults=[Fault("no")])) == []


def test_events_are_about_the_job_as_it_was_read() -> None:
    recorded = Recorded()
    Teller(TFJOBS, recorded).status(JOB, [Emit("Normal", "Running", "it runs")])
    assert recorded.events == [("Normal", "Running", "it runs", "")]
    (reference,) = recorded.regarding
    assert (reference.kind, reference.api_version) == (TFJOBS.kind, TFJOBS.api_version)
    assert (reference.namespace, reference.name, reference.uid, reference.resource_version) == (
        "team",
        "train",
        "u1",
        "7",
    )
