"""The chart of replicas over time, from what pods, gangs and events say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tfjob_controller.client.diagnostics.collection import Diagnostics
from tfjob_controller.client.kinds import snapshot_decoder
from tfjob_controller.dashboard.gantt import (
    ADMITTED,
    BLOCKED,
    CHECKPOINT,
    EARLIER,
    FAILED,
    MAX_REPLICAS,
    PREEMPTION,
    PREPARING,
    PULLING,
    RESIZE,
    RESTART,
    RUNNING,
    STALL,
    SUCCEEDED,
    WAITING,
    Gantt,
    gantt,
)
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB

Object = dict[str, Any]
NOW = datetime(2026, 1, 1, 0, 1, 40, tzinfo=UTC)
JOB = {"metadata": {"name": "train", "namespace": "team", "uid": "u"}, "spec": {"RuntimeId": "ab12"}, "status": {}}


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


def pod(index: int, *, created: int = 0, scheduled: int | None = None, **container: Any) -> Object:
    conditions = (
        [] if scheduled is None else [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(scheduled)}]
    )
    return {
        "metadata": {
            "name": f"train-worker-ab12-{index}-xyz",
            "uid": f"pod-{index}",
            "creationTimestamp": at(created),
            "labels": {"job_type": "worker", "task_index": str(index)},
        },
        "spec": {"nodeName": "n"},
        "status": {"conditions": conditions, "containerStatuses": [container] if container else []},
    }


def event(reason: str, second: int, uid: str = "pod-0", index: int = 0) -> Object:
    about = {"kind": "Pod", "uid": uid, "name": f"train-worker-ab12-{index}-{uid}"}
    return {"metadata": {}, "reason": reason, "involvedObject": about, "firstTimestamp": at(second)}


def gang(phase: str, count: int, **status: str) -> Object:
    members = [{"name": "worker", "count": count}]
    return {
        "metadata": {"creationTimestamp": at(0)},
        "spec": {"members": members},
        "status": {"phase": phase, **status},
    }


def chart(
    *pods: Object, gangs: list[Object] | None = None, events: list[Object] | None = None, ended: int | None = None
) -> Gantt:
    status = {} if ended is None else {"completionTime": at(ended)}
    seen = snapshot_decoder(TFJOB)(msgspec.json.encode({**JOB, "status": status}))
    return gantt(Diagnostics(seen, pods=list(pods), gangs=gangs or [], events=events or []), NOW)


def phases(*pods: Object, **more: Any) -> dict[str, list[tuple[str, float, float]]]:
    rows = chart(*pods, **more).rows
    return {each.replica: [(bar.phase, bar.start, bar.end) for bar in each.bars] for each in rows}


def test_a_pod_that_waits_has_one_bar_until_now() -> None:
    assert phases(pod(0)) == {"worker-0": [(WAITING, 0.0, 100.0)]}


def test_a_pod_is_prepared_and_then_runs() -> None:
    running = {"state": {"running": {"startedAt": at(50)}}}
    assert phases(pod(0, scheduled=10, **running)) == {
        "worker-0": [(WAITING, 0.0, 10.0), (PREPARING, 10.0, 50.0), (RUNNING, 50.0, 100.0)]
    }


def test_the_last_run_before_a_restart_is_shown_as_failed_with_a_mark_at_the_restart() -> None:
    ended = {"terminated": {"startedAt": at(20), "finishedAt": at(40), "exitCode": 1}}
    container = {"lastState": ended, "state": {"running": {"startedAt": at(60)}}}
    bars = phases(pod(0, scheduled=10, **container))["worker-0"]
    expected = [(PREPARING, 10.0, 20.0), (FAILED, 20.0, 40.0), (BLOCKED, 40.0, 60.0), (RUNNING, 60.0, 100.0)]
    assert sorted(bars[1:], key=lambda bar: bar[1]) == expected
    (row,) = chart(pod(0, scheduled=10, **container)).rows
    assert [(mark.kind, mark.at, mark.time) for mark in row.marks] == [(RESTART, 60.0, at(60))]


def ended_run(start: int, end: int) -> Object:
    return {"terminated": {"startedAt": at(start), "finishedAt": at(end), "exitCode": 1}}


def test_a_replica_that_crashes_again_and_again_is_blocked_from_its_first_run_until_now() -> None:
    crashing = pod(0, scheduled=10, restartCount=4, lastState=ended_run(40, 45), state=ended_run(60, 70))
    init = event("Started", 12)
    init["involvedObject"]["fieldPath"] = "spec.initContainers{fetch}"
    events = [init, event("Pulling", 11), event("Started", 15), event("BackOff", 30)]
    bars = phases(crashing, events=events)["worker-0"]
    assert sorted(bars[1:], key=lambda bar: bar[1:]) == [
        (PREPARING, 10.0, 15.0),
        (PULLING, 11.0, 15.0),
        (BLOCKED, 15.0, 40.0),
        (FAILED, 40.0, 45.0),
        (BLOCKED, 45.0, 60.0),
        (FAILED, 60.0, 70.0),
        (BLOCKED, 70.0, 100.0),
    ]


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_replica_whose_runs_are_all_known_is_prepared_until_the_first(restarts: int) -> None:
    last = {"lastState": ended_run(40, 45)} if restarts else {}
    container = {"restartCount": restarts, "state": {"running": {"startedAt": at(60)}}, **last}
    bars = phases(pod(0, scheduled=10, **container), events=[event("Started", 15)])["worker-0"]
    assert bars[1] == (PREPARING, 10.0, 40.0 if restarts else 60.0)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded", "", "Running"])
def test_a_crashed_replica_waits_for_nothing_once_its_pod_or_its_job_has_ended(phase: str) -> None:
    crashed = pod(0, scheduled=10, state=ended_run(20, 30))
    crashed["status"]["phase"] = phase
    if not phase:
        crashed["metadata"]["deletionTimestamp"] = at(30)
    found = phases(crashed, ended=80 if phase == "Running" else None)["worker-0"]
    assert not any(name == BLOCKED for name, _, _ in found)


def test_the_chart_ends_now_while_the_job_runs() -> None:
    failed = pod(0, scheduled=10, state=ended_run(20, 50))
    failed["status"]["phase"] = "Failed"
    assert phases(failed)["worker-0"][-1] == (FAILED, 20.0, 50.0)
    assert phases(failed, ended=60)["worker-0"][-1] == (FAILED, 40.0, 100.0)


def test_a_run_that_ended_well_has_succeeded() -> None:
    ended = {"terminated": {"startedAt": at(20), "finishedAt": at(100), "exitCode": 0}}
    assert phases(pod(0, scheduled=10, state=ended))["worker-0"][-1] == (SUCCEEDED, 20.0, 100.0)


def test_replicas_of_a_gang_wait_before_they_have_pods() -> None:
    found = chart(gangs=[gang("Waiting", 3)])
    assert [row.replica for row in found.rows] == ["worker-0", "worker-1", "worker-2"]
    assert [bar.end for row in found.rows for bar in row.bars] == [100.0] * 3
    assert found.phases == [WAITING]


def test_a_gang_is_admitted_before_its_pods_have_nodes() -> None:
    found = phases(
        pod(0, created=50, scheduled=60, state={"running": {"startedAt": at(80)}}),
        gangs=[gang("Bound", 1, admittedTime=at(50).replace("Z", ".9Z"))],
    )
    assert found["worker-0"] == [
        (WAITING, 0.0, 50.0),
        (ADMITTED, 50.0, 60.0),
        (PREPARING, 60.0, 80.0),
        (RUNNING, 80.0, 100.0),
    ]


@pytest.mark.parametrize("phase", ["Waiting", "Released"])
def test_nothing_waits_after_the_end_of_the_job(phase: str) -> None:
    admitted = {"admittedTime": at(20)} if phase == "Released" else {}
    ended = {"state": {"terminated": {"startedAt": at(40), "finishedAt": at(60), "exitCode": 0}}}
    pods = [pod(0, created=20, scheduled=30, **ended), pod(1, created=20)] if admitted else []
    bars = chart(*pods, gangs=[gang(phase, 2, **admitted)], ended=60).rows
    assert [max(bar.end for bar in row.bars) for row in bars] == [100.0, 100.0]
    waits = [bar for row in bars for bar in row.bars if bar.phase == WAITING]
    assert {bar.end for bar in waits} == {33.33 if admitted else 100.0}
    assert not any(bar.phase == BLOCKED for row in bars for bar in row.bars)


@pytest.mark.parametrize(
    ("container", "events", "bars"),
    [
        (
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
            [("Pulling", 15), ("Failed", 20), ("BackOff", 30)],
            [(PREPARING, 10.0, 20.0), (PULLING, 15.0, 20.0), (BLOCKED, 20.0, 100.0)],
        ),
        (
            {"state": {"waiting": {"reason": "CreateContainerConfigError"}}},
            [],
            [(PREPARING, 10.0, 10.0), (BLOCKED, 10.0, 100.0)],
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"startedAt": at(20), "finishedAt": at(30), "exitCode": 1}},
            },
            [],
            [(PREPARING, 10.0, 20.0), (FAILED, 20.0, 30.0), (BLOCKED, 30.0, 100.0)],
        ),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, [], [(PREPARING, 10.0, 100.0)]),
    ],
    ids=["image", "config", "crash", "creating"],
)
def test_a_pod_that_the_kubelet_tries_to_start_again_is_blocked(
    container: Object, events: list[tuple[str, int]], bars: list[tuple[str, float, float]]
) -> None:
    found = phases(pod(0, scheduled=10, **container), events=[event(*each) for each in events])
    assert found["worker-0"][1:] == bars


def test_pulling_an_image_is_a_part_of_the_preparation() -> None:
    container = {"state": {"running": {"startedAt": at(50)}}}
    events = [event("Pulling", 15), event("Pulled", 40)]
    bars = phases(pod(0, scheduled=10, **container), events=events)["worker-0"]
    assert bars[1:3] == [(PREPARING, 10.0, 50.0), (PULLING, 15.0, 40.0)]


def test_a_pull_that_does_not_end_lasts_until_now() -> None:
    bars = phases(pod(0, scheduled=10), events=[event("Pulling", 20)])["worker-0"]
    assert bars[-1] == (PULLING, 20.0, 100.0)


def test_pods_that_were_deleted_are_shown_as_their_events_tell() -> None:
    earlier = [event("Scheduled", 5, "old"), event("Started", 10, "old"), event("Killing", 30, "old")]
    (row,) = chart(pod(0, created=40, scheduled=50, state={"running": {"startedAt": at(60)}}), events=earlier).rows
    bars = [(bar.phase, bar.start, bar.end) for bar in row.bars]
    seconds = 95 / 100  # the chart begins with the first event
    assert bars[:2] == [
        (PREPARING, 0.0, round(5 / seconds, 2)),
        (EARLIER, round(5 / seconds, 2), round(25 / seconds, 2)),
    ]
    assert [mark.kind for mark in row.marks] == [RESTART]


def test_replicas_beyond_the_limit_are_counted() -> None:
    found = chart(*(pod(index) for index in range(MAX_REPLICAS + 3)))
    assert (len(found.rows), found.hidden, found.rows[10].replica) == (MAX_REPLICAS, 3, "worker-10")


def test_broken_times_and_pods_of_no_replica_are_left_out() -> None:
    broken = pod(0)
    broken["metadata"]["creationTimestamp"] = "yesterday"
    stranger = pod(1)
    stranger["metadata"]["labels"] = {}
    assert chart(broken, stranger).rows == ()


def of_job(reason: str, second: int, message: str = "", **more: Any) -> Object:
    about = {"kind": "TFJob", "uid": "u", "name": "train"}
    event = {"metadata": {}, "reason": reason, "involvedObject": about, "firstTimestamp": at(second), **more}
    return {**event, "message": message}


def test_the_pauses_between_pods_that_failed_are_blocked() -> None:
    earlier = [
        event(reason, second, f"pod-{number}")
        for number, begin in enumerate((10, 40))
        for reason, second in (("Scheduled", begin), ("Started", begin), ("Killing", begin + 10))
    ]
    # The scheduler writes fractions of a second, and the kubelet does not.
    earlier[3]["firstTimestamp"] = at(40).replace("Z", ".9Z")
    running = pod(0, created=60, scheduled=60, state={"running": {"startedAt": at(60)}})
    running["metadata"]["uid"] = "pod-9"

    def pauses(*events: Object) -> list[tuple[float, float]]:
        (row,) = chart(running, events=[*earlier, *events]).rows
        return [(bar.start, bar.end) for bar in row.bars if bar.phase == BLOCKED]

    seconds = 90 / 100  # the chart begins with the first event
    between = [(round(start / seconds, 2), round(end / seconds, 2)) for start, end in ((10, 30), (40, 50))]
    assert pauses() == []
    assert pauses(of_job("Restarted", 20)) == between
    # A job that was suspended meanwhile did not wait because of a failure.
    assert pauses(of_job("Restarted", 20), of_job("Suspended", 30)) == between[1:]


def test_checkpoints_resizes_preemptions_and_stalls_are_marks_of_the_job() -> None:
    events = [
        of_job("CheckpointSaved", 20, "saved step-1", lastTimestamp=at(30)),
        of_job("Resized", 40, "3 workers"),
        of_job("Preempted", 50, "preempted by big"),
        of_job("Stalled", 60, "no output"),
        of_job("Running", 61),
        of_job("Resized", 99, "another job's") | {"involvedObject": {"kind": "TFJob", "uid": "other", "name": "train"}},
    ]
    found = chart(pod(0), events=events)
    assert [(mark.kind, mark.at, mark.text) for mark in found.marks] == [
        (CHECKPOINT, 20.0, "saved step-1"),
        (CHECKPOINT, 30.0, "saved step-1"),
        (RESIZE, 40.0, "3 workers"),
        (PREEMPTION, 50.0, "preempted by big"),
        (STALL, 60.0, "no output"),
    ]
    assert found.mark_kinds == [CHECKPOINT, RESIZE, PREEMPTION, STALL]


def test_one_moment_has_one_mark_and_the_newest_ones_are_kept() -> None:
    twice = [of_job("CheckpointSaved", 20, "first"), of_job("CheckpointSaved", 20, "second")]
    assert [mark.text for mark in chart(pod(0), events=twice).marks] == ["second"]
    many = [of_job("CheckpointSaved", second, str(second)) for second in range(100)]
    assert [mark.text for mark in chart(pod(0), events=many).marks] == [str(each) for each in range(50, 100)]


def test_an_eviction_is_a_mark_of_its_replica() -> None:
    evicted = pod(0)
    condition = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at(50), "message": "drained"}
    evicted["status"]["conditions"].append({**condition, "reason": "EvictionByEvictionAPI"})
    (row,) = chart(evicted).rows
    assert [(mark.kind, mark.at, mark.text) for mark in row.marks] == [
        (PREEMPTION, 50.0, "EvictionByEvictionAPI: drained")
    ]


def test_the_axis_has_a_few_round_times() -> None:
    assert [(tick.at, tick.text) for tick in chart(pod(0)).ticks] == [
        (0.0, "00:00:00"),
        (30.0, "00:00:30"),
        (60.0, "00:01:00"),
        (90.0, "00:01:30"),
    ]


def test_a_time_at_the_edge_of_the_axis_has_no_text() -> None:
    created = pod(0, created=8)
    assert [(tick.at, tick.text) for tick in chart(created).ticks][-2:] == [(56.52, "00:01:00"), (89.13, "00:01:30")]
    ended = pod(0, state={"terminated": {"startedAt": at(0), "finishedAt": at(62), "exitCode": 0}})
    assert [(tick.at, tick.text) for tick in chart(ended, ended=62).ticks][-2:] == [(72.58, "00:00:45"), (96.77, "")]


def test_of_many_replicas_the_preferred_ones_have_lanes() -> None:
    pods = [pod(index) for index in range(MAX_REPLICAS + 3)]
    seen = snapshot_decoder(TFJOB)(msgspec.json.encode(JOB))
    found = gantt(Diagnostics(seen, pods=pods), NOW, preferred=[f"worker-{MAX_REPLICAS + 2}"])
    names = [row.replica for row in found.rows]
    assert len(names) == MAX_REPLICAS
    assert names[-2:] == [f"worker-{MAX_REPLICAS - 2}", f"worker-{MAX_REPLICAS + 2}"]
