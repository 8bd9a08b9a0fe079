"""Tests of audit.jobs.history and audit.jobs.trim: recorded versions, lists and gaps."""

from __future__ import annotations

import pytest

from audit.jobs.history import JOBS, PODS, SECRETS, TFJOBS, History, Object
from audit.jobs.trim import trimmed


def obj(uid: str, version: int) -> Object:
    return {"metadata": {"uid": uid, "name": uid, "resourceVersion": str(version)}}


def test_known_versions_change_nothing() -> None:
    history = History()
    for version in (3, 5, 5, 4):
        history.record(JOBS, "MODIFIED", obj("a", version), 1.0)
    assert history.count == 2
    assert [version["metadata"]["resourceVersion"] for version in next(history.of(JOBS)).versions] == ["3", "5"]


@pytest.mark.parametrize(("change", "is_seen"), [("ADDED", True), ("RELISTED", False)])
def test_only_an_added_object_has_an_observed_begin(change: str, is_seen: bool) -> None:
    history = History()
    history.record(JOBS, change, obj("a", 3), 1.0)
    assert next(history.of(JOBS)).is_begin_seen is is_seen


def test_an_object_missing_from_a_list_ended_after_its_last_observed_version() -> None:
    history = History()
    for name, version in (("a", 1), ("b", 2), ("late", 9)):
        history.record(JOBS, "ADDED", obj(name, version), 1.0)
    history.record_list(JOBS, [obj("a", 4)], 8, 2.0)
    assert {record.uid: record.ended for record in history.of(JOBS)} == {"a": None, "b": 2, "late": None}


def test_a_list_does_not_affect_other_kinds() -> None:
    history = History()
    history.record(PODS, "ADDED", obj("pod", 1), 1.0)
    history.record_list(JOBS, [], 8, 2.0)
    assert len(history.existing(PODS)) == 1


def test_a_deleted_object_keeps_its_first_end() -> None:
    history = History()
    history.record(JOBS, "ADDED", obj("a", 1), 1.0)
    history.record(JOBS, "DELETED", obj("a", 5), 2.0)
    history.record_list(JOBS, [], 8, 3.0)
    record = next(history.of(JOBS))
    assert (record.ended, record.ended_at, record.changed_at) == (5, 2.0, 2.0)


def test_a_gap_is_reported_for_times_that_contain_it() -> None:
    history = History()
    history.note_gap(10.0)
    assert [history.had_gap(*times) for times in ((0, 99), (20, 99), (0, 5))] == [True, False, False]


def test_a_version_is_known_once_it_or_a_later_one_was_recorded() -> None:
    history = History()
    history.record(JOBS, "ADDED", obj("a", 3), 1.0)
    assert [history.knows(obj("a", version)) for version in (2, 3, 4)] == [True, True, False]
    assert not history.knows(obj("b", 1))


def test_the_data_of_secrets_is_dropped() -> None:
    secret = {**obj("keys", 1), "data": {"token": "c2VjcmV0"}, "stringData": {"token": "secret"}}
    assert trimmed(SECRETS, secret) == {"metadata": obj("keys", 1)["metadata"]}


def test_only_pod_templates_are_dropped_from_jobs() -> None:
    spec = {"RuntimeId": "abcd", "replicaSpecs": [{"tfReplicaType": "PS", "replicas": 2, "template": {"spec": {}}}]}
    kept = trimmed(TFJOBS, {**obj("job", 1), "spec": spec, "status": {"phase": "Done"}})
    assert kept["spec"] == {"RuntimeId": "abcd", "replicaSpecs": [{"tfReplicaType": "PS", "replicas": 2}]}
    assert kept["status"] == {"phase": "Done"}


def test_rows_are_in_the_order_of_the_cluster() -> None:
    history = History()
    history.record(PODS, "ADDED", obj("pod", 4), 1.0)
    history.record(JOBS, "ADDED", obj("a", 1), 2.0)
    history.record(PODS, "MODIFIED", obj("pod", 6), 3.0)
    history.record(JOBS, "DELETED", obj("a", 5), 4.0)
    rows = [(row["kind"], row["change"], row["object"]["metadata"]["resourceVersion"]) for row in history.rows()]
    assert rows == [
        (JOBS, "seen", "1"),
        (PODS, "seen", "4"),
        (JOBS, "seen", "5"),
        (JOBS, "gone", "5"),
        (PODS, "seen", "6"),
    ]
    assert [row["at"] for row in history.rows()] == [2.0, 1.0, 4.0, 4.0, 3.0]
