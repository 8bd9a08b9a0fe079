"""The settings of several jobs side by side: the specs of their manifests as rows, and which of them differ. Pure.

Entries of a list that have a name, such as containers and environment variables, are compared by it, whatever their
order. A list of texts, such as a command, is one setting.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

MAX_ROWS = 300
# More settings than a person writes; a manifest may have 20,000 values.
MAX_SETTINGS = 2000
_MAX_TEXT = 200
# What is shown of long texts before the point where they begin to differ.
_BEFORE_DIFFERENCE = 40
# The fields by which entries of lists are told apart.
_NAMES = ("name", "tfReplicaType", "role", "key", "mountPath")
# Parts of a path that a person can do without.
_PLUMBING = frozenset({"spec", "template", "containers", "replicaSpecs", "tfReplicaSpecs"})
# The identity of a job, which always differs.
_IDENTITY = frozenset({"RuntimeId"})
OTHER = "Other settings"
# The title of each group, and the parts of paths that put a setting into it; the first one counts.
_GROUPS: Mapping[str, frozenset[str]] = {
    "Image": frozenset({"image", "imagePullPolicy", "imagePullSecrets", "tfImage"}),
    "Command": frozenset({"command", "args", "workingDir"}),
    "Environment": frozenset({"env", "envFrom"}),
    "Resources": frozenset({"resources", "resourcesPerNode", "resourceClaims"}),
    "Gang and priority": frozenset({"gang", "priorityClassName", "schedulingPolicy", "schedulerName"}),
    "Nodes and replicas": frozenset(
        {"numNodes", "numProcPerNode", "replicas", "elasticPolicy", "autoscaling"}
        | {"nodeSelector", "tolerations", "affinity"}
    ),
    "Storage": frozenset({"volumes", "volumeMounts", "initializer", "exporter", "workspace", "checkpoint"}),
}
_ORDER = {title: index for index, title in enumerate((*_GROUPS, OTHER))}


@dataclass(frozen=True, slots=True)
class Cell:
    """The value of one job; `text` is empty if the job has none. `differs` from the first job's."""

    text: str
    is_set: bool
    differs: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: its whole path, a shorter label, and a cell for each job."""

    path: str
    label: str
    cells: Sequence[Cell]

    @property
    def differs(self) -> bool:
        return any(cell.differs for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows by the title of their group. `hidden` rows are left out; `different` and `total` count all."""

    groups: Mapping[str, Sequence[Row]]
    different: int
    total: int
    hidden: int


def settings_of(spec: Any) -> dict[tuple[str, ...], str]:
    """Returns the settings in the spec of a manifest by their paths."""
    return dict(islice(_flat((), spec), MAX_SETTINGS))


def _flat(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict) and (value or not path):
        for key, item in value.items():
            if path or key not in _IDENTITY:
                yield from _flat((*path, str(key)), item)
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for name, item in _named(value):
            yield from _flat((*path, name), item)
    else:
        yield path, _text(value)


def _named(entries: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The entries of a list by their names, or by their positions if not all have one of their own.

    A name is left out of its entry. An environment variable and the like, which have nothing else but a value, are that
    value.
    """
    for field in _NAMES:
        names = [entry.get(field) if isinstance(entry, dict) else None for entry in entries]
        if all(isinstance(name, str) for name in names) and len({*names}) == len(names):
            for name, entry in zip(names, entries, strict=True):
                rest = {key: value for key, value in entry.items() if key != field}
                yield str(name), rest["value"] if rest.keys() == {"value"} else rest
            return
    yield from ((str(index), entry) for index, entry in enumerate(entries))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return shlex.join(value)
    return json.dumps(value, ensure_ascii=False)


def compare(specs: Sequence[Mapping[tuple[str, ...], str]], *, is_whole: bool = False) -> Comparison:
    """Compares the settings of jobs with those of the first one; rows that are equal are shown only if `is_whole`."""
    paths = dict.fromkeys(path for spec in specs for path in spec)
    rows = [(path, [spec.get(path) for spec in specs]) for path in paths]
    different = sum(len({*values}) > 1 for _, values in rows)
    shown = [(path, values) for path, values in rows if is_whole or len({*values}) > 1]
    shown.sort(key=lambda row: (_ORDER[_title(row[0])], len({*row[1]}) == 1))
    groups: dict[str, list[Row]] = {}
    for path, values in shown[:MAX_ROWS]:
        groups.setdefault(_title(path), []).append(_row(path, values))
    return Comparison(groups, different, len(rows), max(0, len(shown) - MAX_ROWS))


def _title(path: Sequence[str]) -> str:
    return next((title for title, parts in _GROUPS.items() if not parts.isdisjoint(path)), OTHER)


def _row(path: Sequence[str], values: Sequence[str | None]) -> Row:
    label = " / ".join(part for part in path if part not in _PLUMBING) or ".".join(path)
    begin = max(0, _common_length([value for value in values if value is not None]) - _BEFORE_DIFFERENCE)
    cells = [Cell(_clamped(value, begin), value is not None, value != values[0]) for value in values]
    return Row(".".join(path), label, cells)


def _common_length(values: Sequence[str]) -> int:
    """The length of what the values have in common at their beginnings; 0 if they are equal."""
    low, high = min(values, default=""), max(values, default="")
    if low == high:
        return 0
    return next((index for index, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))


def _clamped(value: str | None, begin: int) -> str:
    """At most `_MAX_TEXT` characters of a value; those of a long one around the point where values begin to differ."""
    if value is None or len(value) <= _MAX_TEXT:
        return value or ""
    begin = min(begin, len(value) - 1)
    end = begin + _MAX_TEXT
    return f"{'…' if begin else ''}{value[begin:end]}{'…' if end < len(value) else ''}"
