"""Which run of a replica is read, and what is said where there is none; a scripted server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.jobserver import a_tfjob
from helpers.scripted import Answer, ScriptedRequester
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.logs import LogOptions, LogReader
from tfjob_controller.client.reader import Reader

Object = dict[str, Any]
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-master-ab12-0", "uid": "j", "controller": True}
LABELS = {"batch.kubernetes.io/job-name": JOB["name"], "job_type": "MASTER", "task_index": "0"}


def listed(*objects: Object) -> Object:
    return {"metadata": {}, "items": objects}


def seen(*, restarts: int = 0, state: Object | None = None) -> list[Answer]:
    """What one look at a job with one replica asks for: the job, its pods, its child Jobs."""
    owner = {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "name": "train", "uid": "uid-of-train"}
    child = {"metadata": {"name": JOB["name"], "uid": "j", "ownerReferences": [{**owner, "controller": True}]}}
    container = {"name": "tensorflow", "restartCount": restarts, "state": state or {"running": {}}}
    pod = {
        "metadata": {"name": "pod", "namespace": "team", "uid": "p", "labels": LABELS, "ownerReferences": [JOB]},
        "status": {"phase": "Running", "containerStatuses": [container]},
    }
    job = a_tfjob("train", "Running", {"RuntimeId": "ab12"})
    return [json.dumps(each).encode() for each in (job, listed(pod), listed(child))]


def previous_of(requester: ScriptedRequester) -> list[bytes]:
    reader = LogReader(requester, Reader(requester, "team"), "train", LogOptions(previous=True))
    (view,) = reader.chosen()
    return list(reader.lines(view.replica.id))


def test_a_replica_that_was_not_restarted_has_no_previous_run() -> None:
    requester = ScriptedRequester(*seen(restarts=0))
    words = "master-0 has no previous run: its program was not restarted in the present pod"
    with pytest.raises(ClientError, match=words):
        previous_of(requester)


def test_the_log_of_the_previous_run_is_requested() -> None:
    requester = ScriptedRequester(*seen(restarts=1), [b"before"])
    assert previous_of(requester) == [b"before"]
    assert requester.asked[-1] == {"container": "tensorflow", "previous": "true"}


def test_a_program_that_cannot_start_has_no_log() -> None:
    ended = {
        "exitCode": 128,
        "reason": "StartError",
        "message": 'exec: "pyhton3": executable file not found in $PATH: unknown',
    }
    requester = ScriptedRequester(*seen(state={"terminated": ended}))
    reader = LogReader(requester, Reader(requester, "team"), "train", LogOptions())
    words = r'master-0 has no log: it cannot start: exec: "pyhton3": executable file not found in \$PATH$'
    with pytest.raises(ClientError, match=words):
        list(reader.lines("master-0"))


def test_a_log_that_is_followed_waits_until_the_job_has_replicas() -> None:
    unplanned = json.dumps(a_tfjob("train")).encode()
    requester = ScriptedRequester(unplanned, *seen(restarts=0))
    told: list[str] = []
    reader = LogReader(requester, Reader(requester, "team"), "train", LogOptions(follow=True), told.append)
    assert [view.replica.id for view in reader.chosen()] == ["master-0"]
    assert told == ["waiting for train: it has not started yet"]


def test_a_log_that_is_not_followed_says_that_the_job_has_not_started() -> None:
    requester = ScriptedRequester(json.dumps(a_tfjob("train")).encode())
    with pytest.raises(ClientError, match="train has not started: `kubectl tfjob describe train` says why"):
        LogReader(requester, Reader(requester, "team"), "train", LogOptions()).chosen()


def test_a_log_that_is_closed_while_it_waits_has_no_replicas() -> None:
    requester = ScriptedRequester(json.dumps(a_tfjob("train")).encode())
    reader = LogReader(requester, Reader(requester, "team"), "train", LogOptions(follow=True))
    reader.close()
    assert reader.chosen() == []
