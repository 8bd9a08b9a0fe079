"""The rules of client/diagnostics: what a timeline says of a job, and what is concluded from it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tfjob_controller.client.diagnostics.collection import Diagnostics, log_records_of
from tfjob_controller.client.diagnostics.description import describe, to_html
from tfjob_controller.client.diagnostics.diagnosis import diagnose
from tfjob_controller.client.diagnostics.replicas import replica_views
from tfjob_controller.client.diagnostics.timeline import timeline
from tfjob_controller.client.kinds import snapshot_decoder
from tfjob_controller.client.statusreports import CONTROLLER, GANG_SCHEDULER, StatusReport
from tfjob_controller.dashboard.gantt import gantt
from tfjob_controller.jobs.state.observed import ObservedState
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kinds.trainjob.clientkind import CLIENT_KIND as TRAINJOB

Object = dict[str, Any]

MASTER = {"tfReplicaType": "MASTER", "replicas": 1, "template": {"spec": {"containers": [{"name": "tensorflow"}]}}}
CREATED = "2026-01-01T00:00:00Z"
NOW = datetime(2026, 1, 1, 0, 12, tzinfo=UTC)


def case(
    status: Object | None = None,
    *,
    kind: ClientKind = TFJOB,
    meta: Object | None = None,
    spec: Object | None = None,
    **children: list[Object],
) -> Diagnostics:
    """A job `train` that runs, unless told otherwise."""
    body = {
        "metadata": {
            "name": "train",
            "namespace": "team",
            "uid": "u1",
            "generation": 1,
            "creationTimestamp": CREATED,
            **(meta or {}),
        },
        "spec": {"RuntimeId": "ab12", "replicaSpecs": [MASTER], **(spec or {})},
        "status": {"phase": "Running", "observedGeneration": 1} if status is None else status,
    }
    return Diagnostics(snapshot_decoder(kind)(msgspec.json.encode(body)), **children)


def ready_workers(count: int) -> Object:
    """The part of a status that has two workers, of which so many are ready."""
    workers = {"tf_replica_type": "WORKER", "state": "Running", "ReplicasStates": {"Running": 2}}
    return {"replicaStatuses": [workers], "ready": {"worker": f"{count}/2"}}


def pod(name: str = "worker-0", **fields: Any) -> Object:
    job_type, _, index = name.partition("-")
    labels = {"job_type": job_type.upper(), "task_index": index}
    meta = {"name": f"train-{name}", "uid": f"uid-{name}", "labels": labels}
    return {"metadata": meta, "spec": fields.pop("spec", {}), "status": fields}


def waiting(reason: str, message: str = "", name: str = "worker-0") -> Object:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(name, phase="Pending", containerStatuses=[{"name": "main", "state": state}])


def ended(restart_policy: str) -> Object:
    state = {"terminated": {"exitCode": 7}}
    statuses = [{"name": "main", "state": state}]
    return pod(phase="Running", spec={"restartPolicy": restart_policy}, containerStatuses=statuses)


def mount_event(time: str) -> Object:
    return {
        "involvedObject": {"kind": "Pod", "uid": "uid-worker-0"},
        "reason": "FailedMount",
        "message": f'{time}: secret "keys" not found',
        "lastTimestamp": f"2026-01-01T{time}:00Z",
    }


def initializing(name: str) -> Object:
    """Beside the init container runs a native sidecar."""
    containers = [{"name": "proxy", "restartPolicy": "Always"}, {"name": "fetch"}]
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    statuses = [{"name": "proxy", "started": True, "state": running}, {"name": "fetch", "state": running}]
    return pod(name, spec={"initContainers": containers}, phase="Pending", initContainerStatuses=statuses)


def unscheduled(name: str) -> Object:
    return pod(name, phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "no room"}])


def gang(phase: str, **status: Any) -> Object:
    spec = {"timeoutSeconds": 60, "onTimeout": "Fail"}
    return {"metadata": {"name": "train-ab12"}, "spec": spec, "status": {"phase": phase, **status}}


def seen(**status: Any) -> Object:
    return {"phase": "Creating", "observedGeneration": 1, **status}


def running_step(name: str, count: int) -> Object:
    return {
        "phase": "Running",
        "observedGeneration": 1,
        "jobsStatus": [{"name": name, "replicas": count, "ready": count}],
    }


def condition(type_: str, message: str) -> Object:
    return {"type": type_, "status": "True", "reason": "R", "message": message, "lastTransitionTime": CREATED}


OTHERS = {"runtimeRef": {"name": "plain"}, "managedBy": "kueue.x-k8s.io/multikueue"}


@pytest.mark.parametrize(
    ("found", "now", "next_"),
    [
        pytest.param(
            case(meta={"deletionTimestamp": CREATED}), "it is being deleted", "it is removed once", id="deleted"
        ),
        pytest.param(
            replace(case(seen(conditions=[condition("Restarting", "worker-0")])), namespace_is_deleted=True),
            "its namespace team is being deleted, and the job with it: nothing can be created in it any more",
            "submit the job in another namespace; to see what the deletion waits for: kubectl get namespace team",
            id="a namespace that is being deleted",
        ),
        pytest.param(
            case(kind=TRAINJOB, spec=OTHERS),
            "another controller runs it: kueue",
            "that controller decides",
            id="managed",
        ),
        pytest.param(case({"phase": "Done"}), "it has succeeded", "nothing: it stays", id="succeeded"),
        pytest.param(
            case(
                {"phase": "Failed", "reason": "exit code 1", "completionTime": "2026-01-01T00:00:10Z"},
                spec={"ttlSecondsAfterFinished": 50},
            ),
            "it has failed: exit code 1",
            "it is deleted at 2026-01-01T00:01:00Z",
            id="time to live",
        ),
        pytest.param(case(spec={"replicaSpecs": []}), "its spec cannot be run: ", "correct the spec", id="invalid"),
        pytest.param(
            case({}), "no controller has processed the job yet", "check that a controller runs", id="no controller"
        ),
        pytest.param(
            case(meta={"generation": 2}),
            "the controller has not processed the last change",
            "this takes a moment",
            id="stale",
        ),
        pytest.param(
            case(seen(conditions=[condition("ChangesReverted", "x keeps suspending Job a; it waits. Stop x")])),
            "x keeps suspending Job a; it waits",
            "it continues once the changes are kept. Stop x",
            id="reverted changes",
        ),
        pytest.param(
            case(spec={"suspend": True}),
            "it is suspended",
            "it runs once it is resumed: kubectl tfjob resume tfjob/train -n team",
            id="suspended",
        ),
        pytest.param(
            case(gangs=[gang("")]), "no gang scheduler has processed", "check that one runs", id="no scheduler"
        ),
        pytest.param(
            case(gangs=[gang("Waiting", position=3, message="no room", requeueTime=CREATED)]),
            "it waits for capacity as a gang at position 3 of the queue: no room",
            f"it starts once its turn comes; not before {CREATED}; after 60 s of waiting: Fail",
            id="queued",
        ),
        pytest.param(
            case(gangs=[gang("Bound", preemption={"by": "other/urgent", "state": "Requested"})]),
            "it is preempted: other/urgent gets the capacity, and all of its pods are deleted",
            "it waits for capacity again, and continues from its last checkpoint",
            id="being preempted",
        ),
        pytest.param(
            case(gangs=[gang("Waiting", message="no room", preemption={"by": "other/urgent", "state": "Preempted"})]),
            "it was preempted by other/urgent, and waits for capacity as a gang: no room",
            "it starts once its turn comes",
            id="preempted",
        ),
        pytest.param(
            case(gangs=[gang("Unschedulable", message="too big")]),
            "its gang does not fit even on an empty cluster: too big",
            "it can start once suitable nodes are added",
            id="unschedulable",
        ),
        pytest.param(
            case(seen(), pods=[waiting("ImagePullBackOff", "no such image")]),
            "worker-0 waits: ImagePullBackOff: no such image",
            "the kubelet tries again",
            id="image",
        ),
        pytest.param(
            case(seen(restarts=2), spec={"backoffLimit": 5}, pods=[waiting("CrashLoopBackOff")]),
            "worker-0 waits: CrashLoopBackOff",
            "it is restarted with a backoff of up to 5 minutes; restarts so far: 2, of 5",
            id="crashes",
        ),
        pytest.param(
            case(seen(restarts=2), spec={"backoffLimit": 5}, pods=[ended("OnFailure")]),
            "worker-0 waits: main ended with exit code 7",
            "it is restarted with a backoff of up to 5 minutes; restarts so far: 2, of 5",
            id="crashed, and will be started again",
        ),
        pytest.param(
            case(pods=[ended("Never")]),
            "it runs: replicas are ready",
            "it ends when its chief does",
            id="ended beside a sidecar",
        ),
        pytest.param(
            case(seen(), pods=[waiting("ContainerCreating")], events=[mount_event("11:01"), mount_event("11:02")]),
            'worker-0 waits: FailedMount: 11:02: secret "keys" not found',
            "create the secret keys in the namespace team, or submit the job without it; the kubelet tries again",
            id="a volume that cannot be mounted",
        ),
        pytest.param(
            case(seen(), pods=[unscheduled(f"worker-{index}") for index in range(5)]),
            "worker-0 is not scheduled: no room (also worker-1, worker-2 and 2 more)",
            "kube-scheduler tries again by itself",
            id="unscheduled",
        ),
        pytest.param(
            case(
                seen(
                    conditions=[condition("Restarting", "worker-0 will be restarted")],
                    reason="worker-0: exit code 137; started again after 80 s",
                )
            ),
            "it is being restarted: worker-0 will be restarted; worker-0: exit code 137; started again after 80 s",
            "it continues once",
            id="restarting with a reason",
        ),
        pytest.param(
            case(seen(reason='worker-0: FailedMount: secret "keys" not found'), pods=[pod()]),
            'it waits: worker-0: FailedMount: secret "keys" not found',
            "create the secret keys in the namespace team, or submit the job without it; it runs once this has passed",
            id="a reason that only events give",
        ),
        *(
            pytest.param(case(seen(reason=f"worker-0: FailedCreate: {why}")), "it waits: worker-0", remedy, id=remedy)
            for why, remedy in (
                ("exceeded quota: q, requested: cpu=4", "the quota has to be raised, or other pods have to end"),
                ("failed quota: q: must specify requests.memory", "submit the job with the requests and limits"),
                ('violates PodSecurity "restricted:latest"', "submit the job with the securityContext"),
                (
                    'serviceaccount "robot" not found',
                    "create its ServiceAccount: kubectl create serviceaccount robot -n team; it runs once",
                ),
                ("no PriorityClass with name high was found", "there is no PriorityClass high: choose one of"),
                ('serviceaccount "$(rm -r x)" not found', "it runs once this has passed"),
            )
        ),
        pytest.param(
            case(seen(), pods=[initializing("worker-1"), initializing("worker-0"), pod("ps-0")]),
            "worker-0: its init container fetch runs (also in 1 more)",
            "its program starts then; kubectl tfjob logs tfjob/train -n team --replica worker-0 -c fetch",
            id="an init container",
        ),
        pytest.param(
            case(seen(), pods=[pod()]),
            "its pods are starting",
            "it runs once all of its pods are ready",
            id="starting",
        ),
        pytest.param(case(seen()), "its children are being created", "it runs once", id="no pods yet"),
        pytest.param(
            case({"phase": "Running", "observedGeneration": 1, **ready_workers(2)}),
            "it runs: worker 2/2",
            "it ends when its chief does",
            id="runs",
        ),
        pytest.param(
            case({"phase": "Running", "observedGeneration": 1, **ready_workers(1), "reason": "worker-1: Evicted"}),
            "it runs: worker 1/2; worker-1: Evicted",
            "it ends when its chief does",
            id="runs without one of its replicas",
        ),
        pytest.param(
            case(running_step("node", 2), kind=TRAINJOB),
            "it runs: node 2/2",
            "it ends when all of its nodes have ended",
            id="all nodes decide",
        ),
        pytest.param(
            case(seen(phase="CleanUp")), "its program has ended", "it will be Done or Failed", id="cleaned up"
        ),
    ],
)
def test_the_diagnosis_has_the_state_and_the_next_step(found: Diagnostics, now: str, next_: str) -> None:
    given = diagnose(found, NOW)
    assert given.now.startswith(now)
    assert given.next.startswith(next_)


def reported(program: str, state: str) -> StatusReport:
    """A report of two minutes ago, by a program that stopped a minute later if it has stopped."""
    return StatusReport(program, "2026-01-01T00:10:00Z", state, "2026-01-01T00:11:00Z", "tfjob-system")


@pytest.mark.parametrize(
    ("found", "states", "now", "next_"),
    [
        pytest.param(case(), {CONTROLLER: "running"}, "it runs: replicas are ready", "it ends when", id="it runs"),
        pytest.param(
            case(),
            {CONTROLLER: "stopped"},
            "the controller stopped 60s ago; its last report: it runs: replicas are ready",
            "check its Deployment: kubectl get deployment tfjob-controller -n tfjob-system; nothing changes until",
            id="the controller has stopped",
        ),
        pytest.param(
            case(),
            {CONTROLLER: "unknown"},
            "it runs: replicas are ready (reported by the controller 2m ago)",
            "it ends when its chief does",
            id="Leases cannot be read",
        ),
        pytest.param(
            case(),
            {CONTROLLER: "no lease"},
            "it runs: replicas are ready (reported by the controller 2m ago; no Lease and no pod shows that it runs)",
            "it ends when its chief does",
            id="no Lease",
        ),
        pytest.param(
            case({}),
            {CONTROLLER: "stopped"},
            "no controller has processed the job yet: the controller stopped 60s ago",
            "check its Deployment",
            id="the controller stopped before the job was created",
        ),
        pytest.param(
            case(seen(), gangs=[gang("Waiting", position=2, message="no room")]),
            {CONTROLLER: "running", GANG_SCHEDULER: "stopped"},
            "the gang scheduler stopped 60s ago; its last report: it waits for capacity as a gang at position 2",
            "check its Deployment: kubectl get deployment gang-scheduler -n tfjob-system",
            id="the gang scheduler has stopped",
        ),
        pytest.param(
            case(seen(), pods=[waiting("ImagePullBackOff", "no such image")]),
            {CONTROLLER: "stopped"},
            "worker-0 waits: ImagePullBackOff: no such image",
            "the controller stopped 60s ago: check its Deployment: kubectl get deployment tfjob-controller",
            id="what the kubelet reports is true now",
        ),
        pytest.param(
            case(seen(phase="Done", state="Succeeded")),
            {CONTROLLER: "stopped"},
            "it has succeeded",
            "nothing: it stays until it is deleted",
            id="an end is final",
        ),
    ],
)
def test_a_report_is_the_present_state_only_while_its_program_runs(
    found: Diagnostics, states: dict[str, str], now: str, next_: str
) -> None:
    reports = {program: reported(program, state) for program, state in states.items()}
    given = diagnose(replace(found, reports=reports), NOW)
    assert given.now.startswith(now)
    assert given.next.startswith(next_)


def ended(exit_code: int, reason: str = "Error", message: str = "") -> Object:
    return {"terminated": {"exitCode": exit_code, "reason": reason, "message": message}}


CANNOT_START = ended(128, "StartError", 'exec: "pyhton3": executable file not found in $PATH: unknown')
STAYS = "stays until it is deleted; to run it again, delete it and submit it again"


@pytest.mark.parametrize(
    ("containers", "next_"),
    [
        pytest.param({"containerStatuses": [{"name": "tensorflow", "state": ended(1)}]}, "LOG; the job STAYS", id="it"),
        pytest.param(
            {"containerStatuses": [{"name": "tensorflow", "state": {"running": {}}, "lastState": ended(1)}]},
            "LOG -p; the job STAYS",
            id="its program was restarted",
        ),
        pytest.param(
            {"initContainerStatuses": [{"name": "fetch", "state": ended(2)}], "containerStatuses": []},
            "LOG; the job STAYS",
            id="its init container",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "tensorflow", "state": CANNOT_START}]},
            "nothing: it STAYS",
            id="its program never started",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "tensorflow", "state": ended(0)}]}, "nothing: it STAYS", id="no failure"
        ),
        pytest.param(None, "nothing: it STAYS", id="its pod is gone"),
    ],
)
def test_a_failed_job_names_the_command_that_prints_why(containers: Object | None, next_: str) -> None:
    failed = [] if containers is None else [pod("worker-1", phase="Failed", **containers)]
    other = pod("master-0", phase="Failed", containerStatuses=[{"name": "tensorflow", "state": ended(137)}])
    status = {"phase": "Failed", "reason": "2 replicas failed; worker-1: exit code 1", "observedGeneration": 1}
    log = "see the log of worker-1: kubectl tfjob logs tfjob/train -n team --replica worker-1"
    given = diagnose(case(status, pods=[other, *failed]), NOW)
    assert given.next == next_.replace("LOG", log).replace("STAYS", STAYS)


def test_the_log_of_a_failed_job_is_named_with_the_time_when_it_is_deleted() -> None:
    failed = pod("worker-1", phase="Failed", containerStatuses=[{"name": "tensorflow", "state": ended(1)}])
    status = {"phase": "Failed", "reason": "worker-1 failed: exit code 1", "completionTime": "2026-01-01T00:00:10Z"}
    given = diagnose(case(status, spec={"ttlSecondsAfterFinished": 50}, pods=[failed]), NOW)
    log = "see the log of worker-1: kubectl tfjob logs tfjob/train -n team --replica worker-1"
    assert given.next == f"{log}; the job is deleted at 2026-01-01T00:01:00Z (ttlSecondsAfterFinished)"


def test_a_pod_that_has_ended_or_goes_holds_nothing_up() -> None:
    gone, ended = waiting("ImagePullBackOff"), waiting("ErrImagePull")
    gone["metadata"]["deletionTimestamp"] = CREATED
    ended["status"]["phase"] = "Failed"
    assert diagnose(case(pods=[gone, ended]), NOW).now == "it runs: replicas are ready"


def event(reason: str, about: Object, **fields: Any) -> Object:
    meta = {"creationTimestamp": CREATED, **fields.pop("metadata", {})}
    return {"metadata": meta, "reason": reason, "involvedObject": about, "message": "words", **fields}


def test_the_last_and_the_present_run_of_a_container_have_entries() -> None:
    last = {"exitCode": 137, "reason": "OOMKilled", "startedAt": "2026-01-01T00:00:01Z"}
    statuses = [
        {
            "name": "main",
            "restartCount": 4,
            "lastState": {"terminated": {**last, "finishedAt": "2026-01-01T00:00:05Z"}},
            "state": {"running": {"startedAt": "2026-01-01T00:00:15Z"}},
        }
    ]
    told = timeline(case(pods=[pod(containerStatuses=statuses)]))
    assert [(each.time, each.replica, each.text, each.is_warning) for each in told[1:]] == [
        ("2026-01-01T00:00:01Z", "worker-0", "main started", False),
        ("2026-01-01T00:00:05Z", "worker-0", "main ended with exit code 137 (OOMKilled)", True),
        ("2026-01-01T00:00:15Z", "worker-0", "main started (restart 4)", False),
    ]


def test_a_container_that_never_started_is_not_shown_as_started_in_1970() -> None:
    """The kubelet has no time for it, and writes the first one that there is."""
    ended = {
        "exitCode": 128,
        "reason": "StartError",
        "startedAt": "1970-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:05Z",
    }
    statuses = [{"name": "node", "restartCount": 0, "state": {"terminated": ended}}]
    told = [each.text for each in timeline(case(pods=[pod(containerStatuses=statuses)])) if each.kind == "container"]
    assert told == ["node ended with exit code 128 (StartError)"]


def test_an_event_that_repeats_the_pods_status_is_left_out_while_the_pod_exists() -> None:
    of_living = {"kind": "Pod", "name": "train-worker-0", "uid": "uid-worker-0"}
    of_gone = {"kind": "Pod", "name": "train-worker-1", "uid": "uid-gone"}
    events = [event("Scheduled", of_living), event("Pulled", of_living), event("Scheduled", of_gone)]
    told = [each.text for each in timeline(case(pods=[pod()], events=events)) if each.kind == "event"]
    assert told == ["Pulled [unknown]: words", "Scheduled [unknown]: words"]


@pytest.mark.parametrize(
    ("about", "replica"),
    [("train-worker-ab12-3-x7k2p", "worker-3"), ("train-worker-ab12-3", "worker-3"), ("train-worker-0f0f-3", "")],
)
def test_an_event_of_a_child_that_is_gone_has_the_replica_of_its_name(about: str, replica: str) -> None:
    found = case({"phase": "Running", **ready_workers(2)}, events=[event("Killing", {"kind": "Pod", "name": about})])
    assert [each.replica for each in timeline(found) if each.kind == "event"] == [replica]


def test_both_kinds_of_events_tell_when_they_began_and_how_often_they_were() -> None:
    about = {"kind": "TFJob", "name": "train", "uid": "u1"}
    times = {"firstTimestamp": "2026-01-01T00:00:01Z", "lastTimestamp": "2026-01-01T00:00:09Z"}
    series = {"count": 3, "lastObservedTime": "2026-01-01T00:00:08.000000Z"}
    old = event("Old", about, count=2, source={"component": "kubelet"}, **times)
    new = event("New", about, eventTime="2026-01-01T00:00:02.000000Z", series=series, reportingComponent="me")
    told = [each for each in timeline(case(events=[new, old])) if each.kind == "event"]
    assert [(each.time[:19], each.count, each.last_time[:19], each.text) for each in told] == [
        ("2026-01-01T00:00:01", 2, "2026-01-01T00:00:09", "Old [kubelet]: words"),
        ("2026-01-01T00:00:02", 3, "2026-01-01T00:00:08", "New [me]: words"),
    ]


def test_of_a_log_only_lines_with_the_very_key_count() -> None:
    right = {"key": "team/train", "event": "wrote"}
    lines = [right, {"key": "team/train-2"}, {"event": "about team/train"}]
    log = "\n".join(map(json.dumps, lines)) + '\nteam/train in words\n["team/train"]\n'
    assert list(log_records_of("team/train", log.encode())) == [right]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("completionTime", "9999-12-31T23:59:59Z"),
        ("completionTime", "yesterday"),
        ("startTime", "yesterday"),
        ("lastTransitionTime", "yesterday"),
        ("creationTimestamp", "9999-12-31T23:59:59Z"),
    ],
)
def test_times_that_somebody_has_edited_hide_no_diagnosis(field: str, text: str) -> None:
    times = {"completionTime": CREATED, "startTime": CREATED, "lastTransitionTime": CREATED, field: text}
    failed = {**condition("Failed", "exit code 1"), "lastTransitionTime": times.pop("lastTransitionTime")}
    status = {"phase": "Failed", "reason": "exit code 1", "conditions": [failed], "observedGeneration": 1, **times}
    meta = {"creationTimestamp": text} if field == "creationTimestamp" else {}
    ended = case(status, meta=meta, spec={"ttlSecondsAfterFinished": 50})
    assert diagnose(ended, NOW).now == "it has failed: exit code 1"
    next_ = "nothing: it stays until" if field == "completionTime" else "it is deleted at 2026-01-01T00:00:50Z"
    assert diagnose(ended, NOW).next.startswith(next_)
    job = ended.seen.job
    now = datetime(2026, 1, 2, tzinfo=UTC)
    shown = describe(job, replica_views(job, ObservedState(), now), lambda uid: [])
    assert "exit code 1" in to_html(shown, now)
    assert timeline(ended)
    assert gantt(ended, now).rows == ()
