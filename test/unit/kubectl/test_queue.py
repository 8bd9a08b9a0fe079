"""The queue as a person reads it: who is next, for how long each has waited, and what it lacks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from helpers.memoryapi import MemoryApi, refusal
from tfjob_controller.api.gang import Gang, GangSpec, GangStatus, Member
from tfjob_controller.client.errors import ClientError
from tfjob_controller.kube.meta import ObjectMeta, OwnerReference
from tfjob_controller.kubectl.queue import queue_of, read_queue, rows_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def gang(name: str, phase: str, position: int = 0, *, suspend: bool = False) -> Gang:
    owner = OwnerReference(kind="TFJob", name=f"job-{name}", controller=True)
    spec = GangSpec(members=(Member("master", 1), Member("worker", 3)), priority=7, suspend=suspend)
    status = GangStatus(
        phase=phase, position=position, message="needs more", waiting_since="2026-01-01T11:57:00.000000Z"
    )
    return Gang(ObjectMeta(name=name, namespace="team", owner_references=(owner,)), spec, status)


def test_those_who_wait_come_by_their_place_new_ones_after_them_and_the_impossible_last() -> None:
    queue = queue_of(
        [
            gang("huge", "Unschedulable"),
            gang("new", ""),
            gang("second", "Waiting", 2),
            gang("first", "Waiting", 1),
            gang("runs", "Bound"),
            gang("starts", "Admitted"),
            gang("over", "Released"),
            gang("paused", "Waiting", 3, suspend=True),
        ]
    )
    assert [row.gang for row in queue.waiting] == ["first", "second", "new", "huge"]
    assert queue.running == 2


def test_a_row_says_whose_it_is_how_large_how_long_it_waits_and_why() -> None:
    headers, rows = rows_of(queue_of([gang("first", "Waiting", 1)]), NOW, with_namespace=True)
    assert dict(zip(headers, rows[0], strict=True)) == {
        "Position": "1",
        "Namespace": "team",
        "Gang": "first",
        "Of": "TFJob/job-first",
        "Pods": "4",
        "Priority": "7",
        "Waits": "3m",
        "Message": "needs more",
    }


def test_a_cluster_without_the_kind_is_said_so() -> None:
    api = MemoryApi()
    api.script.append(refusal(404, "NotFound"))
    with pytest.raises(ClientError, match="no gang scheduling"):
        read_queue(api, "team")
