"""The rows of the page of jobs: what is kept of a job, how rows are chosen and sorted. Pure.

A row has a bounded size whatever the job contains, since a dashboard keeps the rows of all jobs that a person may see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from tfjob_controller.client.job import ready_text
from tfjob_controller.client.kinds import KINDS, AnyJob, kind_of
from tfjob_controller.client.text import one_line
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.meta import ObjectMeta

PAGE_ROWS = 100
STATES = ("Pending", "Running", "Suspended", "Succeeded", "Failed")
_MAX_TEXT = 300
# More than a job may report.
_MAX_METRICS = 256
_LOSS = ("loss", "train_loss", "eval_loss")


class JobRow(msgspec.Struct, frozen=True):
    """One job. `percent` is its progress, if the job states the total; `loss` the last one it reported.

    `children` is what the names of its pods contain: its runtime id, or its own name if it owns them.
    """

    metadata: ObjectMeta
    kind: str
    state: str
    ready: str
    progress: str
    percent: int | None
    loss: float | None
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
    meta, status = job.metadata, job.status
    return JobRow(
        metadata=identity_of(meta),
        kind=kind.word,
        state=one_line(status.summary[:_MAX_TEXT]) or ("Deleting" if meta.deletion_timestamp else "New"),
        ready=ready_text(job)[:_MAX_TEXT],
        progress=one_line(kind.progress_of(job)[:_MAX_TEXT]),
        percent=kind.percentage_of(job),
        loss=_loss(job),
        restarts=status.restarts,
        reason=one_line(status.reason[:_MAX_TEXT]),
        children=meta.name if kind.owns_pods else kind.runtime_id_of(job)[:_MAX_TEXT],
    )


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


_SORTS: Mapping[str, Callable[[JobRow], Any]] = {
    "name": lambda row: row.metadata.name,
    "namespace": lambda row: row.metadata.namespace,
    "kind": lambda row: row.kind,
    "state": lambda row: STATES.index(row.state) if row.state in STATES else -1,
    "age": lambda row: row.metadata.creation_timestamp or "",
    "loss": lambda row: (row.loss is None, row.loss or 0.0),
    "restarts": lambda row: row.restarts,
}
SORTS = tuple(_SORTS)
_DEFAULT_SORT = "-age"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows are shown, and in which order. `namespace` "" is all; `sort` has a leading `-` for descending."""

    namespace: str = ""
    kind: str = ""
    state: str = ""
    text: str = ""
    sort: str = _DEFAULT_SORT
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str], namespace: str) -> Selection:
        """From the parameters of a URL; values that do not exist count as not given. `namespace` is the default."""
        sort, page = query.get("sort", ""), query.get("page", "")
        kinds = tuple(kind.word for kind in KINDS)
        return cls(
            namespace=query.get("namespace", namespace)[:253],
            kind=_known(query.get("kind", ""), kinds),
            state=_known(query.get("state", ""), STATES),
            text=query.get("text", "")[:_MAX_TEXT],
            sort=sort if sort.removeprefix("-") in _SORTS else _DEFAULT_SORT,
            page=max(1, int(page)) if page.isdecimal() and len(page) < 7 else 1,
        )

    def parameters(self, **changes: str | int) -> dict[str, str]:
        """The parameters of the URL of this selection with changes; `page` returns to 1 unless it is given."""
        values: dict[str, str | int] = {name: getattr(self, name) for name in ("namespace", "kind", "state", "text")}
        values.update(sort=self.sort, page=1)
        values.update(changes)
        return {name: str(value) for name, value in values.items() if name == "namespace" or value not in ("", 1)}


def _known(value: str, values: Sequence[str]) -> str:
    return value if value in values else ""


@dataclass(frozen=True, slots=True)
class ShownRows:
    """One page of the selected rows; `total` counts all that are selected, `counts` the rows of each state."""

    rows: Sequence[JobRow]
    total: int
    page: int
    pages: int
    counts: Mapping[str, int]


def select(rows: Iterable[JobRow], selection: Selection) -> ShownRows:
    """The rows that a selection shows; `counts` disregard the selected state."""
    text = selection.text.lower()
    selected = [
        row
        for row in rows
        if selection.kind in ("", row.kind)
        and (not text or any(text in cell.lower() for cell in (row.metadata.name, row.metadata.namespace, row.reason)))
    ]
    counts: dict[str, int] = {}
    for row in selected:
        counts[row.state] = counts.get(row.state, 0) + 1
    if selection.state:
        selected = [row for row in selected if row.state == selection.state]
    selected.sort(key=lambda row: (row.metadata.namespace, row.metadata.name, row.kind))
    selected.sort(key=_SORTS[selection.sort.removeprefix("-")], reverse=selection.sort.startswith("-"))
    pages = max(1, -(-len(selected) // PAGE_ROWS))
    page = min(selection.page, pages)
    return ShownRows(selected[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], len(selected), page, pages, counts)
