"""Follows one job to its end, with a line for each change of the job and of its replicas."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from demo.screen import Timeline
from demo.stage import Object, Stage
from localcluster.errors import LocalClusterError
from tfjob_controller.jobs.naming import replica_id_of

POLL_SECONDS = 0.5
FINISHED_PHASES = ("Done", "Failed")
REMOVED = "removed"
_LABELS = {"tfjob": "tf_job_name", "trainjob": "train_job_name"}

# Called with the job.
Look = Callable[[Object], None]


def ignore(job: Object) -> None:
    """Is a `Look` that does nothing."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A job: its kind on the command line of kubectl, and its name."""

    kind: str
    name: str

    @property
    def selector(self) -> str:
        return f"{_LABELS[self.kind]}={self.name}"


@dataclass(frozen=True, slots=True)
class Row:
    """One replica, as it is shown."""

    replica: str
    pod: str
    node: str
    state: str
    restarts: int


@dataclass(slots=True)
class Followed:
    """The last state of a job, and a row for each pod that it ever had, by name."""

    job: Object = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def nodes(self) -> list[str]:
        return sorted({row.node for row in self.rows.values() if row.node})


def follow(stage: Stage, subject: Subject, timeout_seconds: float, look: Look = ignore) -> Followed:
    """Shows the job until it has ended, and calls `look` after each poll. Raises LocalClusterError at the timeout."""
    followed, timeline = Followed(), Timeline(stage.screen)
    while timeline.seconds < timeout_seconds:
        followed.job = stage.kubectl.get(subject.kind, subject.name)
        followed.rows = with_gone(followed.rows, rows_of(stage.kubectl.items("pods", subject.selector)))
        timeline.update(facts(followed.job, followed.rows.values()))
        look(followed.job)
        if followed.job.get("status", {}).get("phase") in FINISHED_PHASES:
            stage.screen.blank()
            return followed
        time.sleep(POLL_SECONDS)
    reason = followed.job.get("status", {}).get("reason") or "see its events and the controller's log"
    raise LocalClusterError(f"{subject.name} has not ended within {timeout_seconds:.0f} s: {reason}")


def replica_of(pod: Object) -> str:
    """Returns a name such as `worker-0`, from the labels that every child carries."""
    return replica_id_of(pod["metadata"].get("labels", {})) or "?"


def state_of(pod: Object) -> str:
    """Returns the pod's phase, or the reason why a container waits or has ended."""
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for container in status.get("containerStatuses", []):
        state = container.get("state", {})
        if reason := state.get("waiting", {}).get("reason"):
            return str(reason)
        if terminated := state.get("terminated"):
            return "Succeeded" if terminated.get("exitCode") == 0 else f"exit code {terminated.get('exitCode')}"
    return str(status.get("phase", "Pending"))


def rows_of(pods: Sequence[Object]) -> list[Row]:
    """Returns a row for each pod, ordered by replica."""
    rows = [
        Row(
            replica=replica_of(pod),
            pod=pod["metadata"]["name"],
            node=pod.get("spec", {}).get("nodeName", ""),
            state=state_of(pod),
            restarts=sum(c.get("restartCount", 0) for c in pod.get("status", {}).get("containerStatuses", [])),
        )
        for pod in pods
    ]
    return sorted(rows, key=lambda row: (row.replica, row.pod))


def with_gone(known: Mapping[str, Row], rows: Sequence[Row]) -> dict[str, Row]:
    """Returns the rows of existing and of deleted pods, by pod."""
    present = {row.pod: row for row in rows}
    gone = {pod: replace(row, state=REMOVED) for pod, row in known.items() if pod not in present}
    return dict(sorted((gone | present).items(), key=lambda item: (item[1].replica, item[0])))


def metrics_of(job: Object) -> str:
    """Returns the metrics in the status of a TrainJob, such as `loss=0.02 step=100`."""
    return " ".join(f"{metric['name']}={metric['value']}" for metric in job.get("status", {}).get("metrics", ()))


def facts(job: Object, rows: Iterable[Row]) -> dict[str, str]:
    """Returns the facts by subject: the job, its reason, its metrics, and each replica."""
    status = job.get("status", {})
    result = {job["metadata"]["name"]: f"phase {status.get('phase') or '-'}, state {status.get('state') or '-'}"}
    if reason := status.get("reason"):
        result["reason"] = str(reason)
    if metrics := metrics_of(job):
        result["training"] = metrics
    for row in rows:
        restarts = f", restarts: {row.restarts}" if row.restarts else ""
        result[row.replica] = f"{row.state}{f' on {row.node}' if row.node else ''}{restarts}"
    return result
