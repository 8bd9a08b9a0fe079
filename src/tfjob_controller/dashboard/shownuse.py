"""What the page of a job shows of its use: a table of bounded size, with columns for what is known. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfjob_controller.api.common.quantity import CPU, MEMORY, rounded_quantity
from tfjob_controller.client.liveuse.gpus import IDLE_MINUTES
from tfjob_controller.client.liveuse.jobuse import JobUse, ReplicaUse

_MAX_ROWS = 100


@dataclass(frozen=True, slots=True)
class UsageCell:
    """A cell: what is used, as text, and in percent of what there is, if that is known."""

    text: str = ""
    percent: float | None = None


@dataclass(frozen=True, slots=True)
class ShownUse:
    """The table of a job: rows of a name and a cell for each of `headers`; `notice` is about unused GPUs.

    Everything is empty if nothing is known.
    """

    headers: Sequence[str] = ()
    rows: Sequence[tuple[str, Sequence[UsageCell]]] = ()
    hidden: int = 0
    notice: str = ""
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.notice or self.problem)


def shown_use(use: JobUse) -> ShownUse:
    """What is shown of the use of a job, which may have any number of pods."""
    columns = [column for column in _COLUMNS if any(column.cell(replica).text for replica in use.replicas)]
    shown = use.replicas[:_MAX_ROWS] if columns else ()
    notice = ""
    if use.unused_gpus:
        gpus = "Its GPU was" if use.unused_gpus == 1 else f"Its {use.unused_gpus} GPUs were"
        notice = f"{gpus} not used in the last {IDLE_MINUTES} minutes."
    return ShownUse(
        headers=[column.header for column in columns],
        rows=[(replica.replica, [column.cell(replica) for column in columns]) for replica in shown],
        hidden=len(use.replicas) - len(shown) if columns else 0,
        notice=notice,
        problem=f"The use of GPUs is not shown. Prometheus: {use.gpu_problem}." if use.gpu_problem else "",
    )


@dataclass(frozen=True, slots=True)
class _Column:
    header: str
    cell: Callable[[ReplicaUse], UsageCell]


def _cpu(replica: ReplicaUse) -> UsageCell:
    return _cell(CPU, replica.cpu_used, replica.cpu_requested)


def _memory(replica: ReplicaUse) -> UsageCell:
    return _cell(MEMORY, replica.memory_used, replica.memory_requested)


def _gpu(replica: ReplicaUse) -> UsageCell:
    if replica.gpu is None or (percent := replica.gpu.utilization) is None:
        return UsageCell()
    count = replica.gpu.count
    return UsageCell(f"{percent:.0f} %" + (f" of {count} GPUs" if count > 1 else ""), round(percent, 1))


def _gpu_memory(replica: ReplicaUse) -> UsageCell:
    if replica.gpu is None:
        return UsageCell()
    return _cell(MEMORY, replica.gpu.memory_used, replica.gpu.memory_total or 0)


_COLUMNS = (
    _Column("CPU", _cpu),
    _Column("Memory", _memory),
    _Column("GPU", _gpu),
    _Column("GPU memory", _gpu_memory),
)


def _cell(resource: str, used: int | None, most: int) -> UsageCell:
    if used is None:
        return UsageCell()
    if not most:
        return UsageCell(rounded_quantity(resource, used))
    text = f"{rounded_quantity(resource, used)} of {rounded_quantity(resource, most)}"
    return UsageCell(text, round(min(100.0, 100 * used / most), 1))
