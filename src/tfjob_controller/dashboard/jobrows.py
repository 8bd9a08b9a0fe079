"""The rows of the page of jobs: what is kept of a job, how rows are chosen and sorted. Pure.

A row has a bounded size whatever the job contains, since a dashboard keeps the rows of all jobs that a person may see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from tfjob_controller.client.job import ready_text
from tfjob_controller.client.jobclass import BY_SLUG, JobClass, verdict_of, verdict_of_reason
from tfjob_controller.client.kinds import KINDS, AnyJob, kind_of
from tfjob_controller.client.text import one_line
from tfjob_controller.dashboard.paging import page_number, page_of
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.meta import ObjectMeta

_MAX_TEXT = 300
# More than a job may report.
_MAX_METRICS = 256
_LOSS = ("loss", "train_loss", "eval_loss")
# The summaries of jobs in addresses that were saved before there were classes. Pending is none of them.
_SUMMARIES = {"Running": "running", "Suspended": "suspended", "Succeeded": "done", "Failed": "failed"}


class JobRow(msgspec.Struct, frozen=True):
    """One job. `cause` is what is wrong with one that needs somebody, in a few words.

    `percent` is its progress, if the job states the total; `loss` the last one it reported; `gpus` the devices that its
    spec requests; `children` what the names of its pods contain: its runtime id, or its own name if it owns them.
    """

    metadata: ObjectMeta
    kind: str
    job_class: JobClass
    cause: str
    ready: str
    progress: str
    percent: int | None
    loss: float | None
    gpus: int
    restarts: int
    reason: str
    children: str = ""


def row_decoder(kind: ClientKind) -> Callable[[bytes | msgspec.Raw], JobRow]:
    """The decoder of a cache of rows. Raises msgspec.DecodeError for anything but a Kubernetes object."""

    def decode_row(raw: bytes | msgspec.Raw) -> JobRow:
        return row_of(kind, kind.resource.decode(raw))

    return decode_row


def identity_of(meta: ObjectMeta) -> ObjectMeta:
    """The metadata without labels and owners."""
    return ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        creation_timestamp=meta.creation_timestamp,
        deletion_timestamp=meta.deletion_timestamp,
    )


def row_of(kind: ClientKind, job: AnyJob) -> JobRow:
    meta, status, (job_class, cause) = job.metadata, job.status, verdict_of(job)
    return JobRow(
        metadata=identity_of(job.metadata),
        kind=kind.word,
        job_class=job_class,
        cause=cause,
        ready=ready_text(job)[:_MAX_TEXT],
        progress=one_line(kind.progress_of(job)[:_MAX_TEXT]),
        percent=kind.percentage_of(job),
        loss=_loss(job),
        gpus=kind.accelerators_of(job),
        restarts=status.restarts,
        reason=one_line(status.reason[:_MAX_TEXT]),
        children=meta.name if kind.owns_pods else kind.runtime_id_of(job)[:_MAX_TEXT],
    )


def with_idle(row: JobRow, *, is_idle: bool) -> JobRow:
    """The row of a job; one that runs and leaves its GPUs unused needs somebody."""
    if row.job_class is not JobClass.RUNNING or not is_idle:
        return row
    return msgspec.structs.replace(row, job_class=JobClass.NEEDS_YOU, cause="GPUs unused for 30 minutes")


def with_pod_reason(row: JobRow, reason: str) -> JobRow:
    """The row of a job whose own status has no reason, with why one of its pods waits."""
    if row.reason or row.job_class not in (JobClass.STARTING, JobClass.RUNNING):
        return row
    job_class, cause = verdict_of_reason(reason)
    if row.job_class is JobClass.RUNNING and not cause:
        job_class = row.job_class
    return msgspec.structs.replace(row, job_class=job_class, cause=cause, reason=reason)


def metrics_of(job: AnyJob) -> dict[str, float]:
    """The metrics in a job's status by their printable names; values that are no numbers are left out."""
    metrics = {}
    for name, value in islice(kind_of(job).metrics_of(job).items(), _MAX_METRICS):
        with suppress(ValueError):
            metrics[one_line(name[:_MAX_TEXT])] = float(value)
    return metrics


def _loss(job: AnyJob) -> float | None:
    values = metrics_of(job)
    return next((values[name] for name in _LOSS if name in values), None)


_ORDER = {job_class: index for index, job_class in enumerate(JobClass)}
# What rows are sorted by; None for a row that has no such value.
_SORTS: Mapping[str, Callable[[JobRow], Any]] = {
    "name": lambda row: row.metadata.name,
    "namespace": lambda row: row.metadata.namespace,
    "kind": lambda row: row.kind,
    "state": lambda row: _ORDER[row.job_class],
    "progress": lambda row: row.percent,
    "loss": lambda row: row.loss if row.loss is not None and math.isfinite(row.loss) else None,
    "gpus": lambda row: row.gpus,
    "restarts": lambda row: row.restarts,
    "age": lambda row: row.metadata.creation_timestamp,
}
# What needs somebody comes first.
_DEFAULT_SORT = "state"


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column: `sort` is the order that it leads to, `direction` the present one as aria-sort names it."""

    label: str
    sort: str = ""
    direction: str = ""


@dataclass(frozen=True, slots=True)
class _Column:
    label: str
    sort: str = ""
    # The order that a first click leads to.
    first: str = ""


_COLUMNS = (
    _Column("Job", "name", "name"),
    _Column("State", "state", "state"),
    _Column("Ready"),
    _Column("Progress", "progress", "-progress"),
    _Column("Loss", "loss", "loss"),
    _Column("GPUs", "gpus", "-gpus"),
    _Column("Restarts", "restarts", "-restarts"),
    # Sorted by the time of creation: the youngest is the last one.
    _Column("Age", "age", "-age"),
    _Column("Reason"),
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows are shown, and in which order.

    `namespace` "" is all, and `state` is the slug of a class; `sort` has a leading `-` for descending.
    """

    namespace: str = ""
    kind: str = ""
    state: str = ""
    text: str = ""
    sort: str = _DEFAULT_SORT
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str], namespace: str) -> Selection:
        """From the parameters of a URL; values that do not exist count as not given. `namespace` is the default."""
        sort, state = query.get("sort", ""), query.get("state", "")
        kinds = tuple(kind.word for kind in KINDS)
        return cls(
            namespace=query.get("namespace", namespace)[:253],
            kind=_known(query.get("kind", ""), kinds),
            state=_known(_SUMMARIES.get(state, state), tuple(BY_SLUG)),
            text=query.get("text", "")[:_MAX_TEXT],
            sort=sort if sort.removeprefix("-") in _SORTS else _DEFAULT_SORT,
            page=page_number(query.get("page", "")),
        )

    def parameters(self, **changes: str | int) -> dict[str, str]:
        """The parameters of the URL of this selection with changes; `page` returns to 1 unless it is given."""
        values: dict[str, str | int] = {name: getattr(self, name) for name in ("namespace", "kind", "state", "text")}
        values.update(sort="" if self.sort == _DEFAULT_SORT else self.sort, page=1)
        values.update(changes)
        return {name: str(value) for name, value in values.items() if name == "namespace" or value not in ("", 1)}

    @property
    def heads(self) -> Sequence[Head]:
        return [self._head(column) for column in _COLUMNS]

    def _head(self, column: _Column) -> Head:
        if not column.sort or self.sort.removeprefix("-") != column.sort:
            return Head(column.label, column.first)
        is_descending = self.sort.startswith("-")
        opposite = self.sort.removeprefix("-") if is_descending else f"-{self.sort}"
        # Of two jobs the one with the later time has the smaller age.
        is_ascending = is_descending if column.sort == "age" else not is_descending
        return Head(column.label, opposite, "ascending" if is_ascending else "descending")


def _known(value: str, values: Sequence[str]) -> str:
    return value if value in values else ""


@dataclass(frozen=True, slots=True)
class ShownRows:
    """One page of the selected rows; `total` counts all that are selected, `counts` the rows of each class."""

    rows: Sequence[JobRow]
    total: int
    page: int
    pages: int
    counts: Mapping[JobClass, int]

    @property
    def all(self) -> int:
        """The number of rows of all classes."""
        return sum(self.counts.values())


def _sorted(rows: Sequence[JobRow], sort: str) -> list[JobRow]:
    """Rows without a value come last in both directions; equal rows keep their order."""
    key = _SORTS[sort.removeprefix("-")]
    known = sorted((row for row in rows if key(row) is not None), key=key, reverse=sort.startswith("-"))
    return [*known, *(row for row in rows if key(row) is None)]


def select(rows: Iterable[JobRow], selection: Selection) -> ShownRows:
    """The rows that a selection shows; `counts` disregard the selected state. Of equal rows the newest comes first."""
    text = selection.text.lower()
    selected = [
        row
        for row in rows
        if selection.kind in ("", row.kind)
        and (
            not text
            or any(text in cell.lower() for cell in (row.metadata.name, row.metadata.namespace, row.cause, row.reason))
        )
    ]
    counts: dict[JobClass, int] = {}
    for row in selected:
        counts[row.job_class] = counts.get(row.job_class, 0) + 1
    if selection.state:
        selected = [row for row in selected if row.job_class is BY_SLUG[selection.state]]
    selected.sort(key=lambda row: (row.metadata.namespace, row.metadata.name, row.kind))
    selected = _sorted(_sorted(selected, "-age"), selection.sort)
    page = page_of(selected, selection.page)
    return ShownRows(page.rows, page.total, page.page, page.pages, counts)
