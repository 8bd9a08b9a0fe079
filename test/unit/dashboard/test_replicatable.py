"""The rows of a job's replicas, their classes, and the containers whose logs can be chosen."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tfjob_controller.client.diagnostics.collection import Diagnostics
from tfjob_controller.client.diagnostics.description import Description, EventRow, ReplicaRow, describe
from tfjob_controller.client.kinds import snapshot_decoder
from tfjob_controller.dashboard.gantt import MAX_REPLICAS, Bar, Gantt, ReplicaBars
from tfjob_controller.dashboard.pages.jobview import folded_events, parts_of
from tfjob_controller.dashboard.replicatable import Containers, ailing, containers_of, replica_table, state_class
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB

JOB = {"metadata": {"name": "train", "namespace": "team", "uid": "u"}, "spec": {"RuntimeId": "ab12"}, "status": {}}
SEEN = snapshot_decoder(TFJOB)(msgspec.json.encode(JOB))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def row(name: str, state: str = "Running") -> ReplicaRow:
    return ReplicaRow(name, state, "", "", ready=True, restarts=0, last_exit="", message="")


def described(*rows: ReplicaRow) -> Description:
    return msgspec.structs.replace(describe(SEEN.job, (), lambda uid: ()), replicas=list(rows))


def lanes(*names: str) -> Gantt:
    return Gantt([ReplicaBars(name, [Bar("running", 0, 100, "runs")]) for name in names], NOW, NOW)


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("Running", "running"),
        ("Succeeded", "done"),
        ("Failed", "failed"),
        ("Pending", "queued"),
        ("CrashLoopBackOff", "needs-you"),
        ("ImagePullBackOff", "needs-you"),
        ("ContainerCreating", "starting"),
        ("<b>", "starting"),
    ],
)
def test_each_state_has_the_class_of_a_pill(state: str, shown: str) -> None:
    assert state_class(state) == shown


def test_replicas_have_their_lanes_and_former_ones_follow() -> None:
    table = replica_table(described(row("master-0"), row("worker-0")), lanes("master-0", "worker-1"))
    found = [(each.row.replica, each.row.state, len(each.lane.bars)) for each in table.rows]
    assert found == [("master-0", "Running", 1), ("worker-0", "Running", 0), ("worker-1", "", 1)]
    assert table.hidden == 0


def test_of_many_replicas_those_that_do_not_run_have_rows() -> None:
    rows = [row(f"worker-{index}", "Failed" if index == 90 else "Running") for index in range(100)]
    description = described(*rows)
    assert ailing(description) == ["worker-90"]
    table = replica_table(description, lanes())
    names = [each.row.replica for each in table.rows]
    assert (len(names), names[0], names[-1], table.hidden) == (MAX_REPLICAS, "worker-0", "worker-90", 36)


def pod(role: str, **spec: Any) -> dict[str, Any]:
    labels = {"job_type": role, "task_index": "0"}
    return {"metadata": {"name": f"{role}-0", "labels": labels}, "spec": spec}


def test_containers_are_those_beside_the_one_that_trains() -> None:
    init = [{"name": "fetch"}, {"name": "proxy", "restartPolicy": "Always"}]
    containers = [{"name": "side"}, {"name": "tensorflow"}]
    pods = [pod("worker", initContainers=init, containers=containers), pod("ps", containers=containers[:1])]
    assert containers_of(Diagnostics(SEEN, pods=pods), {"worker": "tensorflow"}) == {
        "worker": Containers(["fetch"], ["proxy", "side"]),
        "ps": Containers([], []),
    }


def test_events_that_differ_in_numbers_are_one_row_with_their_sum() -> None:
    def event(note: str, count: int = 1, kind: str = "Warning") -> EventRow:
        return EventRow("2026-01-01T00:00:00Z", kind, "Restarted", "", count, note)

    told = [
        event("worker-0 failed (restart 1 of 9)"),
        event("other", kind="Normal"),
        event("(combined from similar events): worker-0 failed (restart 2 of 9)", 3),
    ]
    assert [(each.note, each.count) for each in folded_events(told)] == [
        ("other", 1),
        ("worker-0 failed (restart 2 of 9)", 4),
    ]


def test_a_view_is_taken_apart_at_its_details() -> None:
    assert parts_of('head<div id="details" hx-swap-oob="morph">rest</div>') == (
        "head",
        '<div id="details" hx-swap-oob="morph">rest</div>',
    )
    assert parts_of("a problem") == ("a problem", "")
