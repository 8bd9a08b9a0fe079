"""The queue as a person reads it: who is next, for how long each has waited, and what it lacks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from helpers.memoryapi import MemoryApi, refusal
from helpers.scripted import ScriptedRequester
from tfjob_controller.api.common.cluster import Node, NodeStatus
from tfjob_controller.api.gang import Gang, GangMeta, GangSpec, GangStatus, Member, Missing, NodePlacement, Preemption
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.gangqueue import queue_of, read_queue
from tfjob_controller.client.holders import Holder, Lack, Start, Wait
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import ObjectMeta, OwnerReference
from tfjob_controller.kubectl.commands.queue import holder_rows, request_rows, rows_of, share_rows, summary

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def gang(name: str, phase: str, position: int = 0, *, suspend: bool = False) -> Gang:
    owner = OwnerReference(kind="TFJob", name=f"job-{name}", controller=True)
    spec = GangSpec(members=(Member("master", 1), Member("worker", 3)), priority=7, suspend=suspend)
    status = GangStatus(phase=phase, position=position, message="needs more", queued_time="2026-01-01T11:57:00.000000Z")
    return Gang(GangMeta(name=name, namespace="team", owner_references=(owner,)), spec, status)


def test_waiting_gangs_come_by_position_then_new_ones_and_unschedulable_ones_last() -> None:
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


def test_gangs_that_no_gang_scheduler_has_looked_at_are_distinguished_with_where_to_look() -> None:
    queue = queue_of([gang("new", ""), gang("newer", "")])
    _, rows = rows_of(queue, NOW, with_namespace=False)
    assert [row[-1] for row in rows] == ["no gang scheduler has processed it yet"] * 2
    assert summary(queue) == (
        "no gang scheduler has processed any gang; check that one runs: kubectl get pods -A -l app=gang-scheduler "
        "(docs/gang-scheduling.md describes the installation)"
    )
    assert summary(queue_of([gang("runs", "Bound"), gang("new", "")])).startswith(
        "1 gang with capacity; no gang scheduler has processed 1 gang yet; check that one runs: "
    )
    assert summary(queue_of([gang("first", "Waiting", 1)])) == "0 gangs with capacity"
    assert summary(queue_of([])) == "0 gangs with capacity"


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        pytest.param({}, "44s", id="nobody has looked"),
        pytest.param({"phase": "Waiting", "queued_time": "2026-01-01T11:59:50Z"}, "44s", id="a scheduler came later"),
        pytest.param({"phase": "Waiting", "queued_time": "2026-01-01T11:59:50Z", "attempt": 1}, "10s", id="it ran"),
        pytest.param({"phase": "Waiting", "attempt": 1}, "44s", id="no moment"),
    ],
)
def test_waiting_counts_from_the_creation_until_a_gang_was_placed_once(status: dict[str, Any], waits: str) -> None:
    made = GangMeta(name="a", namespace="team", creation_timestamp="2026-01-01T11:59:16Z")
    headers, rows = rows_of(queue_of([Gang(made, GangSpec(), GangStatus(**status))]), NOW, with_namespace=False)
    assert rows[0][headers.index("Waits")] == waits


def test_a_cluster_without_the_kind_is_said_so() -> None:
    api = MemoryApi()
    api.script.append(refusal(404, "NotFound"))
    with pytest.raises(ClientError, match="no gang scheduling"):
        read_queue(api, "team")


def running(name: str, namespace: str, *, workers: int, target: int = 0) -> Gang:
    """A bound gang whose workers request a CPU and a GPU each, and are asked to be `target`."""
    resources = {"cpu": "1", "nvidia.com/gpu": "1", "memory": "not a quantity"}
    status = GangStatus(
        phase="Bound",
        placement=(NodePlacement("n1", tuple(f"worker-{index}" for index in range(workers))),),
        target_members={"worker": target} if target else {},
        target_reason="capacity for team/first, waiting 31 s" if target else "",
    )
    spec = GangSpec(members=(Member("worker", workers, resources),))
    return Gang(GangMeta(name=name, namespace=namespace), spec, status)


def test_gangs_that_make_way_are_listed_with_the_reason() -> None:
    queue = queue_of([running("large", "team", workers=4, target=2), running("small", "team", workers=1)])
    headers, rows = request_rows(queue, with_namespace=True)
    assert headers == ["Namespace", "Gang", "Of", "Change", "Reason"]
    assert rows == [["team", "large", "", "worker 4 → 2", "capacity for team/first, waiting 31 s"]]


def test_a_preempted_gang_is_listed_with_whom_it_leaves_for() -> None:
    victim = running("small", "team", workers=1)
    preemption = Preemption("other/urgent", "Requested", "2026-01-01T00:00:00Z")
    victim = replace(victim, status=replace(victim.status, preemption=preemption))
    _, rows = request_rows(queue_of([victim]), with_namespace=True)
    assert rows == [["team", "small", "", "all pods leave", "preempted by other/urgent"]]


def test_the_share_of_a_namespace_is_that_of_the_resource_of_which_it_holds_most() -> None:
    node = Node(ObjectMeta(name="n1"), status=NodeStatus(allocatable={"cpu": "32", "nvidia.com/gpu": "8"}))
    gangs = [running("a", "team", workers=4), running("b", "team", workers=1), running("c", "other", workers=1)]
    _, rows = share_rows(queue_of([*gangs, gang("first", "Waiting", 1)], [node]))
    assert rows == [
        ["team", "2", "1", "62.5 % of nvidia.com/gpu", "cpu 5, nvidia.com/gpu 5"],
        ["other", "1", "0", "12.5 % of nvidia.com/gpu", "cpu 1, nvidia.com/gpu 1"],
    ]


def test_without_the_right_to_list_nodes_shares_are_not_known() -> None:
    gangs = msgspec.json.encode({"metadata": {}, "items": [running("a", "team", workers=2)]})
    refused = ApiError(403, "Forbidden", "no")
    (share,) = read_queue(ScriptedRequester(gangs, refused, refused), "team").shares
    assert (share.share, share.weight, share.held) == (None, None, {"cpu": "2", "nvidia.com/gpu": "2"})


def test_the_missing_amount_of_each_resource_is_named() -> None:
    missing = (
        Missing("cpu", "16", "3500m"),
        Missing("memory", "64Gi", "16Gi"),
        Missing("nvidia.com/gpu", "8"),
        Missing("x", "many", "1"),
    )
    first = gang("first", "Waiting", 1)
    waiting = replace(first, status=replace(first.status, missing=missing))
    headers, rows = rows_of(queue_of([waiting]), NOW, with_namespace=False, wide=True)
    assert rows[0][headers.index("Missing")] == (
        "12500m cpu (3500m of 16 usable), 48Gi memory (16Gi of 64Gi usable), 8 nvidia.com/gpu (0 of 8 usable), "
        "x (1 of many usable)"
    )


def test_fair_shares_follow_the_weights_of_all_namespaces() -> None:
    gangs = [running("a", "team", workers=1), running("b", "other", workers=1)]
    whole = queue_of(gangs, None, {"team": 3.0, "other": 1.0}, is_whole=True)
    assert {share.namespace: (share.weight, share.fair) for share in whole.shares} == {
        "team": (3.0, 75.0),
        "other": (1.0, 25.0),
    }
    headers, rows = share_rows(whole)
    assert [row[headers.index("Weight")] for row in rows] == ["1", "3"]
    part = queue_of(gangs, None, {"team": 3.0, "other": 1.0})
    unread = queue_of(gangs, None, {"team": 3.0}, is_whole=True)
    assert {share.fair for share in (*part.shares, *unread.shares)} == {None}


@pytest.mark.parametrize("annotation", ["2.5", "not a weight"])
def test_the_weight_is_that_of_the_annotation_and_1_for_an_invalid_one(annotation: str) -> None:
    gangs = msgspec.json.encode({"metadata": {}, "items": [running("a", "team", workers=2)]})
    annotations = {"scheduling.kubeflow.org/queue-weight": annotation}
    space = msgspec.json.encode({"metadata": {"name": "team", "annotations": annotations}})
    (share,) = read_queue(ScriptedRequester(gangs, ApiError(403, "Forbidden", "no"), space), "team").shares
    assert (share.weight, share.fair) == (2.5 if annotation == "2.5" else 1.0, None)


def test_the_holders_of_what_a_gang_lacks_are_listed_with_their_ends_and_its_start() -> None:
    holder = Holder("team", "trainjob/large", "6", "2026-01-01T11:00:00Z", "2026-01-01T13:00:00Z", "limit")
    lack = Lack("nvidia.com/gpu", "8", "2", "6", 25.0, [holder], more=2, others="1")
    headers, rows = holder_rows({("team", "first"): Wait([lack], Start("2026-01-01T13:00:00Z", "limit"), True)}, NOW)
    assert headers == ["Gang", "Holds", "By", "Ends"]
    assert rows == [
        ["team/first", "nvidia.com/gpu: 6", "team/trainjob/large", "in 60m (limit)"],
        ["team/first", "nvidia.com/gpu:", "2 more jobs", ""],
        ["team/first", "nvidia.com/gpu: 1", "pods of no job", ""],
        ["team/first", "nvidia.com/gpu:", "others may hold the rest, which you may not see", ""],
        ["team/first", "", "(may start)", "in 60m, by the limits of jobs"],
    ]
