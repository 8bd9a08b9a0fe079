"""Which run of a replica is read, and what is said where there is none; a scripted server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from helpers.jobserver import a_tfjob, a_trainjob
from helpers.manifests import master, tfjob, workers
from helpers.scripted import Answer, ScriptedRequester
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.logs import LogOptions, LogReader
from tfjob_controller.client.reader import Reader
from tfjob_controller.jobs.naming import runtime_id_of
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kinds.trainjob.clientkind import CLIENT_KIND as TRAINJOB

Object = dict[str, Any]
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-master-ab12-0", "uid": "j", "controller": True}
LABELS = {"batch.kubernetes.io/job-name": JOB["name"], "job_type": "MASTER", "task_index": "0"}


KIND_OF = {"TFJob": TFJOB, "TrainJob": TRAINJOB}


def listed(*objects: Object) -> Object:
    return {"metadata": {}, "items": objects}


def seen(
    *,
    restarts: int = 0,
    state: Object | None = None,
    last: Object | None = None,
    inits: Sequence[Object] = (),
    phase: str = "Running",
) -> list[Answer]:
    """What one look at a job with one replica asks for: the job, its pods, its child Jobs."""
    owner = {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "name": "train", "uid": "uid-of-train"}
    child = {"metadata": {"name": JOB["name"], "uid": "j", "ownerReferences": [{**owner, "controller": True}]}}
    container = {"name": "tensorflow", "restartCount": restarts, "state": state or {"running": {}}}
    container |= {"lastState": last} if last else {}
    pod = {
        "metadata": {"name": "pod", "namespace": "team", "uid": "p", "labels": LABELS, "ownerReferences": [JOB]},
        "status": {"phase": phase, "containerStatuses": [container], "initContainerStatuses": list(inits)},
    }
    job = a_tfjob("train", "Running", {"RuntimeId": "ab12"})
    return [json.dumps(each).encode() for each in (job, listed(pod), listed(child))]


def previous_of(requester: ScriptedRequester) -> list[bytes]:
    reader = LogReader(requester, Reader(requester, "team", TFJOB), "train", LogOptions(previous=True))
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


def test_the_words_of_a_kubelet_about_a_removed_container_are_no_log() -> None:
    requester = ScriptedRequester(*seen(restarts=1), [b"unable to retrieve container logs for containerd://5d1f"])
    with pytest.raises(ClientError, match="no longer has the log of the previous run of master-0: without -p"):
        previous_of(requester)


def test_a_program_that_cannot_start_has_no_log() -> None:
    ended = {
        "exitCode": 128,
        "reason": "StartError",
        "message": 'exec: "pyhton3": executable file not found in $PATH: unknown',
    }
    requester = ScriptedRequester(*seen(state={"terminated": ended}))
    reader = LogReader(requester, Reader(requester, "team", TFJOB), "train", LogOptions())
    words = r'master-0 has no log: it cannot start: exec: "pyhton3": executable file not found in \$PATH$'
    with pytest.raises(ClientError, match=words):
        list(reader.lines("master-0"))


def test_a_program_that_cannot_start_has_no_log_once_its_pod_is_gone_either() -> None:
    _, _, child = seen()
    job = a_tfjob("train", "Failed", {"RuntimeId": "ab12"})
    job["status"]["reason"] = 'master-0 cannot start: exec: "pyhton3": executable file not found in $PATH'
    requester = ScriptedRequester(json.dumps(job).encode(), json.dumps(listed()).encode(), child)
    reader = LogReader(requester, Reader(requester, "team", TFJOB), "train", LogOptions())
    with pytest.raises(ClientError, match=r'master-0 has no log: it cannot start: exec: "pyhton3": executable'):
        list(reader.lines("master-0"))


def test_a_log_that_is_followed_waits_until_the_job_has_replicas() -> None:
    unplanned = json.dumps(a_tfjob("train")).encode()
    requester = ScriptedRequester(unplanned, *seen(restarts=0))
    told: list[str] = []
    reader = LogReader(requester, Reader(requester, "team", TFJOB), "train", LogOptions(follow=True), told.append)
    assert [view.replica.id for view in reader.chosen()] == ["master-0"]
    assert told == ["waiting for train: it has not started yet"]


def test_a_log_that_is_not_followed_says_that_the_job_has_not_started() -> None:
    requester = ScriptedRequester(json.dumps(a_tfjob("train")).encode())
    with pytest.raises(
        ClientError, match="train has not started: `kubectl tfjob describe tfjob/train -n team` shows the reason"
    ):
        LogReader(requester, Reader(requester, "team", TFJOB), "train", LogOptions()).chosen()


def test_a_log_that_is_closed_while_it_waits_has_no_replicas() -> None:
    requester = ScriptedRequester(json.dumps(a_tfjob("train")).encode())
    reader = LogReader(requester, Reader(requester, "team", TFJOB), "train", LogOptions(follow=True))
    reader.close()
    assert reader.chosen() == []


INITIALIZING = {"waiting": {"reason": "PodInitializing"}}
FAILED = {"terminated": {"exitCode": 1, "reason": "Error"}}


def an_init(state: Object, *, restarts: int = 0, last: Object | None = None) -> Object:
    return {"name": "fetch", "restartCount": restarts, "state": state, "lastState": last or {}}


def read(requester: ScriptedRequester, options: LogOptions) -> tuple[list[bytes], list[str]]:
    """Returns the lines of master-0, and the notes about them."""
    notes: list[str] = []
    reader = LogReader(requester, Reader(requester, "team", TFJOB), "train", options, note=notes.append)
    return list(reader.lines("master-0")), notes


@pytest.mark.parametrize(
    ("init", "phase"),
    [
        pytest.param(an_init(FAILED), "Failed", id="for good"),
        pytest.param(
            an_init({"waiting": {"reason": "CrashLoopBackOff"}}, restarts=2, last=FAILED), "Pending", id="repeatedly"
        ),
    ],
)
def test_the_log_of_an_init_container_that_failed_is_shown_under_its_name(init: Object, phase: str) -> None:
    requester = ScriptedRequester(*seen(state=INITIALIZING, inits=[init], phase=phase), [b"no such dataset"])
    assert read(requester, LogOptions()) == (
        [b"no such dataset"],
        ["master-0 has not started: its init container fetch failed (exit code 1); its log:"],
    )
    assert requester.asked[-1] == {"container": "fetch"}


def test_a_followed_log_goes_on_from_the_failed_init_container_to_the_program() -> None:
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    requester = ScriptedRequester(
        *seen(state=INITIALIZING, inits=[an_init(FAILED)], phase="Pending"),
        [b"no such dataset"],
        *seen(inits=[an_init(done, restarts=1, last=FAILED)]),
        [b"step 1"],
    )
    lines, notes = read(requester, LogOptions(follow=True))
    assert (lines, len(notes)) == ([b"no such dataset", b"step 1"], 1)


def test_a_program_that_waits_for_its_init_containers_has_no_log() -> None:
    requester = ScriptedRequester(*seen(state=INITIALIZING, inits=[an_init({"running": {}})], phase="Pending"))
    with pytest.raises(
        ClientError, match="master-0 has no log: its init container fetch runs, and -c fetch shows its log"
    ):
        read(requester, LogOptions())


def waiting_for(status: Object, *, suspend: bool = False) -> list[Answer]:
    """What one look at a job whose pod is not created asks for."""
    job = a_tfjob("train", "Creating", {"RuntimeId": "ab12", "suspend": suspend})
    job["status"] |= status
    owner = {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "name": "train", "uid": "uid-of-train"}
    meta = {"name": JOB["name"], "uid": "j", "ownerReferences": [{**owner, "controller": True}]}
    child = {"metadata": meta, "spec": {"suspend": suspend}}
    return [json.dumps(each).encode() for each in (job, listed(), listed(child))]


@pytest.mark.parametrize(
    ("status", "suspend", "why"),
    [
        ({"reason": "master-0: FailedCreate: exceeded quota: q"}, False, "FailedCreate: exceeded quota: q"),
        ({"reason": "worker-0: FailedCreate: exceeded quota: q"}, False, "no pod after 30 s: .*"),
        ({}, True, "the job is suspended"),
    ],
)
def test_a_replica_without_a_log_says_what_the_status_says(status: Object, suspend: bool, why: str) -> None:
    with pytest.raises(ClientError, match=f"^master-0 has no log: {why}$"):
        read(ScriptedRequester(*waiting_for(status, suspend=suspend)), LogOptions())


@pytest.mark.parametrize(
    ("counts", "why"), [({"node-0": 4}, "it waits for its next start"), ({"node-1": 4}, "it has not started yet")]
)
def test_a_log_that_is_followed_between_two_runs_says_that_it_waits_for_the_next(counts: Object, why: str) -> None:
    """The pod of the last run was deleted, and its successor is not created before the pause is over."""
    job = a_trainjob("train", "Running", {"numNodes": 2}, restarts=4, restartCounts=counts)
    job["status"]["jobsStatus"] = [{"name": "node", "replicas": 2}]
    requester = ScriptedRequester(json.dumps(job).encode(), *(json.dumps(listed()).encode() for _ in range(2)))
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        reader.close()

    reader = LogReader(requester, Reader(requester, "team", TRAINJOB), "train", LogOptions(follow=True), say)
    assert list(reader.lines("node-0")) == []
    assert told == [f"waiting for node-0: {why}"]


def test_an_init_container_that_cannot_start_is_named() -> None:
    message = 'exec: "fetch-it": executable file not found in $PATH: unknown'
    ended = {"terminated": {"exitCode": 128, "reason": "StartError", "message": message}}
    requester = ScriptedRequester(*seen(state=INITIALIZING, inits=[an_init(ended)], phase="Failed"))
    with pytest.raises(ClientError, match='its init container fetch cannot start: exec: "fetch-it": executable'):
        read(requester, LogOptions())


def test_the_log_of_a_program_that_runs_again_says_how_its_previous_run_ended() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:00Z"}}
    requester = ScriptedRequester(*seen(restarts=1, last=ended), [b"step 1"])
    words = "the previous run ended at 2026-01-01T00:00:00Z with exit code 137 (OOMKilled)"
    assert read(requester, LogOptions()) == ([b"step 1"], [f"master-0 was restarted in its pod: {words}"])


def test_a_container_that_is_named_is_read_to_the_end_of_its_run() -> None:
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    requester = ScriptedRequester(*seen(inits=[an_init(done)]), [b"fetched"])
    options = LogOptions(follow=True, over_restarts=True, container="fetch", since_seconds=90, timestamps=True)
    assert read(requester, options) == ([b"fetched"], [])
    assert requester.asked[-1] == {
        "container": "fetch", "follow": "true", "timestamps": "true", "sinceSeconds": "90"
    }  # fmt: skip


def test_a_container_that_the_pod_does_not_have_is_refused_with_those_that_it_has() -> None:
    requester = ScriptedRequester(*seen(inits=[an_init({"running": {}})]))
    with pytest.raises(ClientError, match=r"^master-0 has no container proxy: it has fetch, tensorflow$"):
        read(requester, LogOptions(container="proxy"))


def child(job: Object, role: str, status: Object | None = None) -> tuple[Object, list[Object]]:
    """Returns the child Job of a job's only replica of a role, and its pod if there is one."""
    meta = job["metadata"]
    runtime_id = job["spec"].get("RuntimeId") or runtime_id_of(meta["uid"])
    name = f"{meta['name']}-{role.lower()}-{runtime_id}-0"
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
    made = {"name": name, "uid": f"uid-of-{name}", "ownerReferences": [{**owner, "controller": True}]}
    of_job = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["uid"], "controller": True}
    labels = {"batch.kubernetes.io/job-name": name, "job_type": role, "task_index": "0"}
    pod = {"name": f"pod-of-{role}", "namespace": "team", "uid": "p", "labels": labels, "ownerReferences": [of_job]}
    return {"metadata": made}, [{"metadata": pod, "status": status}] if status is not None else []


def ended_pod(container: str, exit_code: int) -> Object:
    ended = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
    return {"phase": "Failed", "containerStatuses": [{"name": container, "restartCount": 0, "state": ended}]}


def default_log(job: Object, *children: tuple[Object, list[Object]], **options: Any) -> tuple[list[bytes], list[str]]:
    """Returns the lines of the replica that is read if none is named, and the notes about them."""
    notes: list[str] = []
    look = (job, listed(*(pod for _, pods in children for pod in pods)), listed(*(made for made, _ in children)))
    requester = ScriptedRequester(*(json.dumps(each).encode() for each in look), [b"a line"])
    reader = LogReader(
        requester, Reader(requester, "team", KIND_OF[job["kind"]]), "train", LogOptions(**options), note=notes.append
    )
    (view,) = reader.chosen()
    return [view.replica.id.encode(), *reader.lines(view.replica.id)], notes


def failed_trainjob(reason: str) -> Object:
    job = a_trainjob("train", "Failed", {"datasetConfig": {"storageUri": "s3://a"}}, reason=reason)
    job["status"]["jobsStatus"] = [{"name": name, "replicas": 1} for name in ("node", "dataset-initializer")]
    return job


def test_of_a_job_that_an_initializer_has_ended_the_log_is_the_initializers() -> None:
    reason = "dataset-initializer-0 failed: exit code 1: no such dataset"
    job = failed_trainjob(reason)
    initializer = child(job, "dataset-initializer", ended_pod("dataset-initializer", 1))
    assert default_log(job, initializer) == (
        [b"dataset-initializer-0", b"a line"],
        [f"train has failed: {reason}; this is the log of dataset-initializer-0"],
    )


def test_a_node_that_was_never_started_names_what_has_ended_the_job() -> None:
    job = failed_trainjob("DeadlineExceeded: not done after 30 s")
    words = r"node-0 has no log: the job has failed \(DeadlineExceeded: not done after 30 s\) before it was started$"
    with pytest.raises(ClientError, match=words):
        default_log(job, child(job, "dataset-initializer"))


def failed_tfjob() -> Object:
    spec = {"RuntimeId": "ab12", "replicaSpecs": tfjob(master(), workers(1))["spec"]["replicaSpecs"]}
    return a_tfjob(
        "train",
        "Failed",
        spec,
        reason="BackoffLimitExceeded: 3 restarts, backoffLimit is 2; worker-0 failed: exit code 137",
    )


def test_a_program_that_cannot_start_has_no_log_also_if_its_pod_was_stopped_before_it_was_tried_again() -> None:
    """The kubelet then reports another end, and sends an error about a missing file as the log."""
    job = failed_tfjob()
    job["status"]["reason"] = 'worker-0 cannot start: exec: "pyhton3": executable file not found in $PATH'
    with pytest.raises(ClientError, match=r'^worker-0 has no log: it cannot start: exec: "pyhton3": executable'):
        default_log(job, child(job, "WORKER", ended_pod("tensorflow", 137)), replica="worker-0")


def test_of_a_job_that_failed_by_a_worker_the_log_is_the_workers() -> None:
    job = failed_tfjob()
    both = [child(job, role, ended_pod("tensorflow", 137)) for role in ("MASTER", "WORKER")]
    assert default_log(job, *both)[0][0] == b"worker-0"


def test_if_only_the_chief_has_a_log_it_is_the_chiefs_and_the_cause_is_named() -> None:
    job = failed_tfjob()
    lines, notes = default_log(job, child(job, "MASTER", ended_pod("tensorflow", 0)), child(job, "WORKER"))
    assert lines == [b"master-0", b"a line"]
    assert notes == [f"train has failed: {job['status']['reason']}; this is the log of master-0"]
