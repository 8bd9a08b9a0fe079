"""The table of a job's replicas on its page: a row each with its state, its lane over time, and how it ended. Pure.

Of a job of hundreds the table has `MAX_REPLICAS` rows: first those that do not run as they should.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfjob_controller.api.gang import kind_of
from tfjob_controller.client.diagnostics.collection import Diagnostics, Object
from tfjob_controller.client.diagnostics.description import Description, ReplicaRow
from tfjob_controller.client.diagnostics.diagnosis import BLOCKING_REASONS
from tfjob_controller.client.diagnostics.replicas import NOT_STARTED, STOPPED
from tfjob_controller.client.diagnostics.timeline import replica_of
from tfjob_controller.dashboard.gantt import MAX_REPLICAS, Gantt, ReplicaBars
from tfjob_controller.jobs.state.replica_state import FAILED, RUNNING, SUCCEEDED

# The containers of a pod that a page offers.
MAX_CONTAINERS = 30
_CLASSES = {
    RUNNING: "running",
    SUCCEEDED: "done",
    FAILED: "failed",
    "Suspended": "suspended",
    STOPPED: "suspended",
    "Terminating": "suspended",
    "Pending": "queued",
    NOT_STARTED: "queued",
}
_HEALTHY = ("running", "done")


@dataclass(frozen=True, slots=True)
class ReplicaLane:
    """A row; `state_class` is the class of its pill."""

    row: ReplicaRow
    state_class: str
    lane: ReplicaBars


@dataclass(frozen=True, slots=True)
class ReplicaTable:
    """`hidden` counts the replicas that have no row."""

    rows: Sequence[ReplicaLane]
    hidden: int


@dataclass(frozen=True, slots=True)
class Containers:
    """The names of the other containers of a replica, besides the one that trains."""

    init: Sequence[str] = field(default_factory=list)
    sidecars: Sequence[str] = field(default_factory=list)


def state_class(state: str) -> str:
    """The class of a replica's state, which is one of this project or a reason of the kubelet."""
    return _CLASSES.get(state) or ("needs-you" if state in BLOCKING_REASONS else "starting")


def ailing(description: Description) -> list[str]:
    """The replicas that a table of some should have."""
    return [row.replica for row in description.replicas if state_class(row.state) not in _HEALTHY]


def replica_table(description: Description, chart: Gantt) -> ReplicaTable:
    """The replicas of a description, whose lanes are those of a chart with `ailing` ones preferred.

    Replicas that the chart alone has, such as those that a job no longer has, follow without a state.
    """
    lanes = {lane.replica: lane for lane in chart.rows}
    first = set(ailing(description))
    chosen = sorted(description.replicas, key=lambda row: (row.replica not in lanes, row.replica not in first))
    names = {row.replica for row in chosen[:MAX_REPLICAS]}
    rows = [
        ReplicaLane(row, state_class(row.state), lanes.get(row.replica) or ReplicaBars(row.replica, ()))
        for row in description.replicas
        if row.replica in names
    ]
    known = {row.replica for row in description.replicas}
    rows += [ReplicaLane(_former(name), "", lane) for name, lane in lanes.items() if name not in known][
        : MAX_REPLICAS - len(rows)
    ]
    return ReplicaTable(rows, len(known) - len(names))


def _former(name: str) -> ReplicaRow:
    return ReplicaRow(name, "", "", "", ready=False, restarts=0, last_exit="", message="")


def containers_of(case: Diagnostics, programs: Mapping[str, str]) -> dict[str, Containers]:
    """The containers of the first pod of each role; `programs` has the name of the one that trains."""
    by_role: dict[str, Containers] = {}
    for pod in case.pods:
        role = kind_of(replica_of(pod))
        if role and role not in by_role:
            by_role[role] = _containers(pod.get("spec", {}), programs.get(role, ""))
    return by_role


def _containers(spec: Object, program: str) -> Containers:
    init = (spec.get("initContainers") or ())[:MAX_CONTAINERS]
    others = [container["name"] for container in spec.get("containers") or ()][:MAX_CONTAINERS]
    program = program if program in others else next(iter(others), "")
    native = [container["name"] for container in init if container.get("restartPolicy") == "Always"]
    return Containers(
        [container["name"] for container in init if container["name"] not in native],
        [*native, *(name for name in others if name != program)],
    )
