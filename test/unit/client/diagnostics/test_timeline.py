"""Which lines of a timeline are one, and what that line says."""

from __future__ import annotations

import pytest

from tfjob_controller.client.diagnostics.timeline import (
    CONDITION,
    CONTAINER,
    EVENT,
    LOG,
    OBJECT,
    TimelineEntry,
    _of_checkpoints,
    _of_pod,
    fold_entries,
    is_routine,
    sort_entries,
)

IMAGE = "localhost/typo:1"


def at(seconds: int) -> str:
    return f"2026-01-01T00:{seconds // 60:02d}:{seconds % 60:02d}Z"


def event(
    replica: str, text: str, seconds: int, count: int = 1, last: int = 0, *, is_warning: bool = True
) -> TimelineEntry:
    last_time = at(last) if count > 1 else ""
    source = f"pod/train-{replica}-x7k2p"
    return TimelineEntry(at(seconds), source, EVENT, text, replica, count, last_time, is_warning)


def a_wrong_image(replica: str) -> list[TimelineEntry]:
    """All that a Job, a pod and the kubelet say of one replica in the first minutes."""
    job, pod = f"job/train-{replica}", f"pod/train-{replica}-x7k2p"
    number = replica.rpartition("-")[2]
    refused = f'Failed [kubelet]: failed to pull "{IMAGE}": dial tcp 10.0.0.{number}:5000: connection refused'
    return [
        TimelineEntry(at(0), job, OBJECT, "created", replica),
        TimelineEntry(
            at(0), job, EVENT, f"SuccessfulCreate [job-controller]: Created pod: train-{replica}-x7k2p", replica
        ),
        TimelineEntry(at(0), pod, OBJECT, "created", replica),
        TimelineEntry(at(0), pod, CONDITION, f"scheduled to node-{number}", replica),
        TimelineEntry(at(0), pod, CONDITION, "not ready: ContainersNotReady", replica),
        event(replica, f'Pulling [kubelet]: Pulling image "{IMAGE}"', 1, 4, 90, is_warning=False),
        event(replica, refused, 2, 3, 80),
        event(replica, refused.replace("10.0.0", "10.0.1"), 91),
        event(replica, "Failed [kubelet]: Error: ErrImagePull", 2, 4, 91),
        event(replica, f'BackOff [kubelet]: Back-off pulling image "{IMAGE}"', 15, 9, 110 + int(number)),
        event(replica, "Failed [kubelet]: Error: ImagePullBackOff", 15, 9, 110),
    ]


def test_a_wrong_image_of_three_replicas_is_a_few_lines() -> None:
    entries = sort_entries(each for index in range(3) for each in a_wrong_image(f"worker-{index}"))
    shown = fold_entries(entries)
    assert len(entries) == 33
    assert [
        (each.replica, each.source, each.count, each.last_time, each.text.partition(" [")[0]) for each in shown
    ] == [
        ("worker-0..2", "3 jobs", 1, "", "created"),
        ("worker-0..2", "3 pods", 1, "", "created"),
        ("worker-0", "pod/train-worker-0-x7k2p", 1, "", "scheduled to node-0"),
        ("worker-0..2", "3 pods", 1, "", "not ready: ContainersNotReady"),
        ("worker-1", "pod/train-worker-1-x7k2p", 1, "", "scheduled to node-1"),
        ("worker-2", "pod/train-worker-2-x7k2p", 1, "", "scheduled to node-2"),
        ("worker-0..2", "3 jobs", 3, at(0), "SuccessfulCreate"),
        ("worker-0..2", "3 pods", 12, at(90), "Pulling"),
        ("worker-0..2", "3 pods", 12, at(91), "Failed"),
        ("worker-0..2", "3 pods", 12, at(91), "Failed"),
        ("worker-0..2", "3 pods", 27, at(112), "BackOff"),
        ("worker-0..2", "3 pods", 27, at(110), "Failed"),
    ]


def test_folded_entries_have_the_text_of_the_last_and_the_time_of_the_first() -> None:
    first = event("worker-0", "BackOff [kubelet]: back-off 10s restarting", 1)
    (shown,) = fold_entries([first, event("worker-0", "BackOff [kubelet]: back-off 20s restarting", 30)])
    assert (shown.time, shown.last_time, shown.text) == (at(1), at(30), "BackOff [kubelet]: back-off 20s restarting")
    assert shown.source == first.source


def test_names_with_random_letters_do_not_keep_the_events_of_a_job_apart() -> None:
    job, text = (
        "job/one-worker-g1kw-0",
        'FailedCreate [job-controller]: Error creating: pods "{}" is forbidden: no quota',
    )
    refused = [
        TimelineEntry(at(second), job, EVENT, text.format(f"one-worker-g1kw-0-{suffix}"), is_warning=True)
        for second, suffix in ((1, "5xkmj"), (2, "bcdfg"))
    ]
    combined = text.replace(": Error", ": (combined from similar events): Error").format("one-worker-g1kw-0-zzzzz")
    (shown,) = fold_entries([*refused, TimelineEntry(at(3), job, EVENT, combined, is_warning=True)])
    assert shown.count == 3


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(event("worker-0", "Failed [kubelet]: no such secret", 5), id="another message"),
        pytest.param(event("worker-0", "Failed [kubelet]: no space", 5, is_warning=False), id="no warning"),
        pytest.param(
            TimelineEntry(at(5), "job/train-worker-0", EVENT, "Failed [kubelet]: no space", is_warning=True), id="job"
        ),
    ],
)
def test_other_reasons_and_messages_stay_apart(other: TimelineEntry) -> None:
    assert len(fold_entries([event("worker-0", "Failed [kubelet]: no space", 1), other])) == 2


@pytest.mark.parametrize("kind", [CONTAINER, LOG])
def test_ends_of_containers_and_log_lines_stay_as_they_are(kind: str) -> None:
    entry = TimelineEntry(at(1), "pod/a-b-c", kind, "main ended with exit code 1", "worker-0")
    assert fold_entries([entry, entry]) == [entry, entry]


def test_the_numbers_of_the_jobs_own_events_matter() -> None:
    resized = [TimelineEntry(at(n), "tfjob/train", EVENT, f"Resized [c]: to {n} workers") for n in (1, 2)]
    again = TimelineEntry(at(9), "tfjob/train", EVENT, "Resized [c]: to 1 workers", count=2, last_time=at(20))
    shown = fold_entries([*resized, again])
    assert [(each.text, each.count, each.last_time) for each in shown] == [
        ("Resized [c]: to 1 workers", 3, at(20)),
        ("Resized [c]: to 2 workers", 1, ""),
    ]


@pytest.mark.parametrize(
    ("text", "is_shown"),
    [
        ("Scheduled is False: ExceedsClusterCapacity: needs 3 CPUs", False),
        ("not scheduled: needs 3 CPUs", False),
        ("Scheduled is False: ExceedsClusterCapacity: needs 4 CPUs", True),
        ("Admitted is True", True),
    ],
)
def test_a_condition_that_repeats_an_event_is_left_out(text: str, is_shown: bool) -> None:
    condition = TimelineEntry(at(0), "gang/train-a", CONDITION, text)
    told = TimelineEntry(at(0), "tfjob/train", EVENT, "ExceedsClusterCapacity [gang-scheduler]: needs 3 CPUs")
    assert (condition in fold_entries([condition, told])) == is_shown
    assert fold_entries([condition]) == [condition]


WHY = "node-0 failed: exit code 1: no … such file"


@pytest.mark.parametrize("why", [WHY, "launcher-0 succeeded"])
def test_why_a_job_ended_is_told_once(why: str) -> None:
    job, whole = "trainjob/train", why.replace("…", "program, and so no")
    ended = TimelineEntry(at(9), job, OBJECT, f"ended: {why}")
    entries = [
        TimelineEntry(at(8), job, CONDITION, f"Running is False: ReplicaFailed: {whole}"),
        ended,
        TimelineEntry(at(9), job, CONDITION, f"Failed is True: ReplicaFailed: {whole}"),
        TimelineEntry(at(9), job, CONDITION, f"Scheduled is True: Admitted: {whole}, on time"),
        TimelineEntry(at(9), job, EVENT, f"CleanUp [tfjob-controller]: Job is in phase CleanUp: {why}"),
        TimelineEntry(at(9), "job/train-0", CONDITION, f"Failed is True: BackoffLimitExceeded: {whole}"),
    ]
    assert [entry.text for entry in fold_entries(entries)] == [
        f"ended: {why}",
        f"Scheduled is True: Admitted: {whole}, on time",
        "CleanUp [tfjob-controller]: Job is in phase CleanUp",
        f"Failed is True: BackoffLimitExceeded: {whole}",
    ]
    assert len(fold_entries([entry for entry in entries if entry is not ended])) == 5


def test_a_pod_that_its_kubelet_has_ended_is_shown_without_an_end_of_a_container() -> None:
    status = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    ready = {"type": "Ready", "status": "False", "reason": "PodFailed", "lastTransitionTime": at(3)}
    pod = {"metadata": {"name": "a"}, "spec": {}, "status": {**status, "conditions": [ready]}}
    assert [(entry.text, entry.is_warning) for entry in sort_entries(_of_pod(pod))] == [
        ("ended by the kubelet: Evicted: low on memory", True)
    ]


def test_lines_of_several_reconciles_stay_apart_where_their_ids_are_shown() -> None:
    made = [TimelineEntry(at(1), "tfjob/train", EVENT, "Created [c]", reconcile_id=each) for each in ("a", "b")]
    assert [each.reconcile_id for each in fold_entries(made)] == ["a"]
    assert [each.reconcile_id for each in fold_entries(made, keep_reconciles_apart=True)] == ["a", "b"]


def test_what_a_job_has_saved_and_restored_is_in_its_timeline() -> None:
    checkpoint = {
        "name": "checkpoint-30",
        "step": 30,
        "time": at(5),
        "size": 2048,
        "failure": {"name": "checkpoint-40", "reason": "no rights", "time": at(9)},
        "restored": {"name": "checkpoint-20", "step": 20, "time": at(1), "repeatedSteps": 7},
    }
    entries = sort_entries(_of_checkpoints("trainjob/train", checkpoint))
    assert [(each.time, each.text, each.is_warning) for each in entries] == [
        (at(1), "training continues from checkpoint-20 (step 20); 7 steps are done again", False),
        (at(5), "saved checkpoint-30 (step 30), 2.0 KiB", False),
        (at(9), "checkpoint-40 is not saved: no rights", True),
    ]
    assert sort_entries(_of_checkpoints("trainjob/train", None)) == []


def test_normal_events_of_the_kubelet_are_routine_and_warnings_are_not() -> None:
    entries = [*a_wrong_image("0"), event("worker-0", "Started [scheduler]: a [kubelet]: b", 1, is_warning=False)]
    assert [entry.text.split()[0] for entry in entries if is_routine(entry)] == ["Pulling"]
