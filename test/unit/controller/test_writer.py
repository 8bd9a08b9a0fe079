"""The rules of controller/writer.py: what is written for a job, what is taken over, and what is left to others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.answering import Answering, Request
from helpers.memoryapi import MemoryApi, refusal
from tfjob_controller.api.common.core import (
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    SERVICES,
    BatchJob,
    HorizontalPodAutoscaler,
    Secret,
    Service,
)
from tfjob_controller.controller.writer import ChildClient, Fanout, ResponseCache, Writer, WriteResult
from tfjob_controller.jobs.actions.model import Actions, Create, Delete, Patch, SetSuspend, build_delete
from tfjob_controller.jobs.naming import CHILD_SELECTOR
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.meta import ObjectMeta, Resource

OWNER = BatchJob(ObjectMeta(name="train", namespace="team", uid="u1"))
LABELS = {CHILD_SELECTOR: ""}
KEYS = Resource("example.com", "v1", "keys", "Key", decoder_for(Secret))


def references(uid: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "name": "train", "uid": uid, "controller": True}]


def body(name: str, uid: str = "u1", labels: dict[str, str] | None = None) -> dict[str, Any]:
    own = LABELS if labels is None else labels
    return {"metadata": {"name": name, "namespace": "team", "labels": own, "ownerReferences": references(uid)}}


class World:
    """One writer without helpers, so that writes go out one after another, in order."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        self.jobs: Store[BatchJob] = Store()
        self.services: Store[Service] = Store()
        self.keys: ResponseCache[Secret] = ResponseCache()
        autoscalers: Store[HorizontalPodAutoscaler] = Store()
        self.writer = Writer(
            {
                HORIZONTAL_POD_AUTOSCALERS: ChildClient(
                    self._client(HORIZONTAL_POD_AUTOSCALERS), autoscalers, is_optional=True
                ),
                JOBS: ChildClient(self._client(JOBS), self.jobs),
                SERVICES: ChildClient(self._client(SERVICES), self.services),
                KEYS: ChildClient(self._client(KEYS), self.keys, is_watched=False),
            },
            Fanout(0),
        )

    def _client(self, resource: Resource[Any]) -> ResourceClient[Any]:
        return ResourceClient(self.api, resource, retry=False)

    def there(self, resource: Resource, found: dict[str, Any]) -> str:
        path = resource.path("team", found["metadata"]["name"])
        self.api.objects[path] = {**found, "metadata": {**found["metadata"], "uid": "u7", "resourceVersion": "12"}}
        return path

    def carry_out(self, **actions: Any) -> WriteResult:
        return self.writer.apply(OWNER, Actions(**{kind: tuple(each) for kind, each in actions.items()}))

    def methods(self) -> list[str]:
        return [request.method for request in self.api.sent]


@pytest.fixture
def world() -> World:
    return World()


def test_what_was_created_is_in_the_cache_at_once(world: World) -> None:
    create = Create(JOBS, "a", body("a"))
    assert world.carry_out(creates=[create]).created == [create]
    assert world.jobs.get("team/a") is not None


def test_what_a_lost_answer_had_created_is_taken_and_costs_one_look(world: World) -> None:
    world.there(JOBS, body("a"))
    report = world.carry_out(creates=[Create(JOBS, "a", body("a"))])
    assert (report.created, report.faults, report.failed_creates) == ([], [], [])
    assert world.jobs.get("team/a") is not None
    assert world.methods() == ["POST", "GET"]


@pytest.mark.parametrize(
    ("resource", "methods", "labels"),
    [
        pytest.param(JOBS, ["POST", "GET", "PATCH"], LABELS, id="watched: without them no cache would see it"),
        pytest.param(KEYS, ["POST", "GET"], {}, id="not watched: nobody looks for it"),
    ],
)
def test_an_own_child_that_lost_its_labels_gets_them_where_it_is_watched(
    world: World, resource: Resource, methods: list[str], labels: dict[str, str]
) -> None:
    path = world.there(resource, body("a", labels={}))
    assert not world.carry_out(creates=[Create(resource, "a", body("a"))]).faults
    assert (world.methods(), world.api.objects[path]["metadata"]["labels"]) == (methods, labels)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param(
            body("a", uid="u2"),
            "cannot create Job a: Job a exists already and belongs to TFJob train (u2)",
            id="another job's",
        ),
        pytest.param(
            {"metadata": {"name": "a", "namespace": "team"}},
            "cannot create Job a: Job a exists already and is not this job's: it has no controller; "
            "delete or rename it",
            id="nobody's",
        ),
    ],
)
def test_a_foreign_object_under_a_childs_name_is_reported_and_not_changed(
    world: World, found: dict[str, Any], words: str
) -> None:
    world.there(JOBS, found)
    report = world.carry_out(creates=[Create(JOBS, "a", body("a"))])
    assert [fault.message for _, fault in report.failed_creates] == [words]
    assert not report.faults[0].permanent
    assert world.jobs.get("team/a") is None
    assert world.methods() == ["POST", "GET"]


def test_a_look_at_what_is_there_that_fails_is_a_fault_of_the_create(world: World) -> None:
    world.there(JOBS, body("a"))
    world.api.script.extend([refusal(409, "AlreadyExists"), refusal(403, "Forbidden", "no")])
    report = world.carry_out(creates=[Create(JOBS, "a", body("a"))])
    assert [fault.message for _, fault in report.failed_creates] == ["cannot create Job a: no"]


@pytest.mark.parametrize("is_suspended", [True, False])
def test_a_job_is_suspended_and_resumed_by_one_field(world: World, is_suspended: bool) -> None:
    path = world.there(JOBS, body("a"))
    assert not world.carry_out(suspends=[SetSuspend("a", is_suspended)]).faults
    assert world.api.objects[path]["spec"] == {"suspend": is_suspended}
    job = world.jobs.get("team/a")
    assert job is not None
    assert job.spec.suspend is is_suspended


@pytest.mark.parametrize(
    ("is_foreground", "policy"), [pytest.param(True, "Foreground", id="fg"), pytest.param(False, "Background", id="bg")]
)
def test_only_that_very_object_is_deleted_and_as_it_is_said(world: World, is_foreground: bool, policy: str) -> None:
    world.there(JOBS, body("a"))
    delete = Delete(JOBS, "a", "u7", is_foreground, "12")
    assert world.carry_out(deletes=[delete]).deleted == [delete]
    (request,) = world.api.sent
    assert request.body == {"propagationPolicy": policy, "preconditions": {"uid": "u7", "resourceVersion": "12"}}


class Terminating(Answering):
    """Says that the object exists as long as its dependents, of which it has some."""

    def answer(self, request: Request) -> bytes:
        there = body("a")
        times = {"resourceVersion": "13", "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return json.dumps({**there, "metadata": {**there["metadata"], **times}}).encode()


def test_the_cache_shows_at_once_that_a_job_is_being_deleted() -> None:
    """Its pods, which another watch delivers, may be seen to be deleted before the watch of Jobs delivers that."""
    jobs: Store[BatchJob] = Store()
    child_jobs = ChildClient(ResourceClient(Terminating(), JOBS), jobs)
    child_jobs.delete("team", Delete(JOBS, "a", "u7", foreground=True))
    job = jobs.get("team/a")
    assert job is not None
    assert job.metadata.deletion_timestamp is not None


def test_a_child_job_is_deleted_as_it_was_seen_and_what_has_no_end_of_its_own_as_the_one_it_is() -> None:
    """A cache that is behind may not know that the Job has completed."""
    meta = ObjectMeta(name="a", namespace="team", uid="u7", resource_version="12")
    assert (build_delete(JOBS, BatchJob(meta)).version, build_delete(SERVICES, Service(meta)).version) == ("12", "")


@pytest.mark.parametrize(
    ("actions", "status"),
    [
        pytest.param({"deletes": [Delete(JOBS, "a", "u7")]}, 404, id="deleted already"),
        pytest.param({"deletes": [Delete(JOBS, "a", "u7")]}, 409, id="another has the name, or it has changed"),
        pytest.param({"suspends": [SetSuspend("a", True)]}, 404, id="to be suspended"),
        pytest.param({"patches": [Patch(SERVICES, "a", {})]}, 404, id="to be changed"),
    ],
)
def test_what_is_gone_before_it_is_changed_is_no_fault_and_not_our_doing(
    world: World, actions: dict[str, Any], status: int
) -> None:
    world.api.script.append(refusal(status, "Conflict" if status == 409 else "NotFound"))
    report = world.carry_out(**actions)
    assert (report.faults, report.deleted) == ([], [])


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        pytest.param({"creates": [Create(JOBS, "a", body("a"))]}, "cannot create Job a: no", id="create"),
        pytest.param({"deletes": [Delete(JOBS, "a", "u7")]}, "cannot delete Job a: no", id="delete"),
        pytest.param({"patches": [Patch(SERVICES, "a", {})]}, "cannot change Service a: no", id="patch"),
        pytest.param({"suspends": [SetSuspend("a", True)]}, "cannot suspend Job a: no", id="suspend"),
        pytest.param({"suspends": [SetSuspend("a", False)]}, "cannot resume Job a: no", id="resume"),
    ],
)
def test_a_fault_says_what_was_tried_and_only_creates_are_reported_as_refused(
    world: World, actions: dict[str, Any], words: str
) -> None:
    world.api.script.append(refusal(403, "Forbidden", "no"))
    report = world.carry_out(**actions)
    assert [fault.message for fault in report.faults] == [words]
    assert bool(report.failed_creates) is ("creates" in actions)
    assert (report.created, report.deleted) == ([], [])


@pytest.mark.parametrize("actions", [{"suspends": [SetSuspend("a", True)]}, {"patches": [Patch(JOBS, "a", {})]}])
def test_a_change_that_came_too_late_is_a_fault(world: World, actions: dict[str, Any]) -> None:
    """Unlike a deletion: another object of that name has the uid that no change names."""
    world.api.script.append(refusal(409, "Conflict", "no"))
    assert len(world.carry_out(**actions).faults) == 1


@pytest.mark.parametrize(
    ("status", "reason", "sent"),
    [
        pytest.param(403, "Forbidden", 1, id="a quota: the others would fare alike"),
        pytest.param(409, "Conflict", 3, id="a conflict: it is about this one"),
        pytest.param(422, "Invalid", 3, id="an invalid one"),
    ],
)
def test_those_that_would_meet_the_same_obstacle_stay_unsent(world: World, status: int, reason: str, sent: int) -> None:
    world.api.script.append(refusal(status, reason))
    report = world.carry_out(creates=[Create(JOBS, name, body(name)) for name in "abc"])
    assert len(world.api.sent) == sent
    assert (len(report.created), len(report.failed_creates), len(report.faults)) == (sent - 1, 1, 1)


@pytest.mark.parametrize(("status", "reason"), [(403, "Forbidden"), (422, "Invalid")])
def test_a_child_without_which_the_job_runs_neither_ends_it_nor_halts_others(
    world: World, status: int, reason: str
) -> None:
    world.api.script.append(refusal(status, reason, "spec.metrics[0].type: Unsupported value"))
    autoscaler = Create(HORIZONTAL_POD_AUTOSCALERS, "a", body("a"))
    report = world.carry_out(creates=[autoscaler, *(Create(JOBS, name, body(name)) for name in "bc")])
    (fault,) = report.faults
    assert (fault.permanent, fault.halts, len(report.created)) == (False, False, 2)
    assert fault.message == "cannot create HorizontalPodAutoscaler a: spec.metrics[0].type: Unsupported value"


def named(name: str, uid: str = "u1") -> Service:
    return Service(ObjectMeta(name=name, namespace="team", uid=uid))


def test_what_was_answered_last_is_remembered_by_its_key() -> None:
    known: ResponseCache[Service] = ResponseCache()
    assert known.get("team/a") is None
    first = named("a")
    assert known.assume(first)
    assert known.get("team/a") is first
    assert known.get("other/a") is None
    last = named("a", "u2")
    known.assume(last)
    assert known.get("team/a") is last


def test_the_least_recently_used_response_is_dropped_and_memory_is_bounded() -> None:
    known: ResponseCache[Service] = ResponseCache()
    for index in range(5000):
        known.assume(named(f"a{index}"))
        assert known.get("team/a0") is not None
    assert known.get("team/a1") is None
    assert known.get("team/a4999") is not None
