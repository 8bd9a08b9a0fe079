"""The content of the live table, and of the lines without a terminal: pure functions from API objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tfjob_controller.jobs.naming import replica_id_of

Object = Mapping[str, Any]

REMOVED = "removed"

_COLOURS = {
    "Running": "cyan",
    "Succeeded": "green",
    "Done": "green",
    "Failed": "red",
    "FAILED": "red",
    "RUNNING": "cyan",
    "SUCCESS": "green",
    "Waiting": "yellow",
    "Pending": "yellow",
    "Creating": "yellow",
    "CleanUp": "magenta",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One replica, as it is shown."""

    replica: str
    pod: str
    node: str
    state: str
    restarts: int


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


def coloured(word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, ""))


def picture(job: Object, rows: Iterable[Row], elapsed_seconds: float) -> Group:
    """Returns the job's phase and reason, above the table of its replicas."""
    status = job.get("status", {})
    heading = Text.assemble(
        (f"{job['metadata']['name']}  ", "bold"),
        ("phase ", "dim"),
        coloured(status.get("phase", "") or "not processed yet"),
        ("  state ", "dim"),
        coloured(status.get("state", "") or "-"),
        (f"  {elapsed_seconds:.0f} s", "dim"),
    )
    table = Table(box=None, header_style="dim", pad_edge=False)
    for title in ("Replica", "Pod", "Node", "State", "Restarts"):
        table.add_column(title, no_wrap=True)
    for row in rows:
        table.add_row(row.replica, row.pod, row.node or "-", coloured(row.state), str(row.restarts))
    reason = Text(status.get("reason", ""), style="yellow")
    metrics = Text(metrics_of(job), style="green")
    return Group(heading, *(line for line in (reason, metrics) if line.plain), table)


def metrics_of(job: Object) -> str:
    """Returns the metrics in the status of a TrainJob, such as `loss=0.02 step=100`."""
    return " ".join(f"{each['name']}={each['value']}" for each in job.get("status", {}).get("metrics", ()))


def facts(job: Object, rows: Iterable[Row]) -> dict[str, str]:
    """Returns the facts by subject: the job, its reason, its metrics, and each replica."""
    status = job.get("status", {})
    found = {job["metadata"]["name"]: f"phase {status.get('phase') or '-'}, state {status.get('state') or '-'}"}
    if reason := status.get("reason"):
        found["reason"] = str(reason)
    if metrics := metrics_of(job):
        found["training"] = metrics
    for row in rows:
        restarts = f", restarts: {row.restarts}" if row.restarts else ""
        found[row.replica] = f"{row.state}{f' on {row.node}' if row.node else ''}{restarts}"
    return found


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Returns a line for each fact that was added, changed or removed."""
    lines = [f"{about}: {text}" for about, text in now.items() if before.get(about) != text]
    return lines + [f"{about}: removed" for about in before if about not in now]
