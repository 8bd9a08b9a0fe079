"""Jobs from a file: CSV with the columns `arrival,ps,workers,min,max,work,gpus per worker`, in any order.

Times and work are in seconds (work: of a single worker). What is wrong is said with its line and column.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tfjob_controller.simulator.jobs import SimJob, SimulationError, ms

COLUMNS = ("arrival", "ps", "workers", "min", "max", "work", "gpus per worker")
# What a person would not type, and would take for ever.
_MOST_SECONDS = 1e9
_MOST_PODS = 10_000


def read_trace(path: str) -> list[SimJob]:
    """The jobs of a file, in the order of their arrivals. Raises SimulationError."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SimulationError(f"cannot read the trace {path}: {error}") from None
    try:
        return parse_trace(text.splitlines())
    except SimulationError as error:
        raise SimulationError(f"{path}: {error}") from None


def parse_trace(lines: Iterable[str]) -> list[SimJob]:
    """The same from its lines."""
    reader = csv.reader(lines)
    columns = [name.strip() for name in next(reader, [])]
    _check_columns(columns)
    jobs = list(_jobs(reader, columns, lambda: reader.line_num))
    if not jobs:
        raise SimulationError("line 2: there is no job")
    return sorted(jobs, key=lambda job: job.arrival_ms)


def _check_columns(columns: Sequence[str]) -> None:
    for name in columns:
        if name not in COLUMNS:
            raise SimulationError(f"line 1: {name!r} is no column; there are {', '.join(COLUMNS)}")
        if columns.count(name) > 1:
            raise SimulationError(f"line 1: the column {name!r} is there twice")
    for name in COLUMNS:
        if name not in columns:
            raise SimulationError(f"line 1: the column {name!r} is missing")


def _jobs(rows: Iterable[Sequence[str]], columns: Sequence[str], line: Callable[[], int]) -> Iterator[SimJob]:
    for number, row in enumerate((each for each in rows if any(each)), start=1):
        try:
            if len(row) != len(columns):
                raise SimulationError(f"{len(row)} values for {len(columns)} columns")
            yield _job(number, dict(zip(columns, row, strict=True)))
        except SimulationError as error:
            raise SimulationError(f"line {line()}: {error}") from None


def _job(number: int, row: Mapping[str, str]) -> SimJob:
    workers = _count(row, "workers", 1)
    least, most = _count(row, "min", 1), _count(row, "max", 1)
    if least > workers:
        raise SimulationError(f"min: {least} is more than workers, {workers}")
    if most < workers:
        raise SimulationError(f"max: {most} is less than workers, {workers}")
    arrival, work = _seconds(row, "arrival"), _seconds(row, "work")
    if not ms(work):
        raise SimulationError("work: must be above zero")
    return SimJob(
        f"job-{number:05}", ms(arrival), _count(row, "ps", 0), workers, least, most, work,
        _count(row, "gpus per worker", 1),
    )  # fmt: skip


def _seconds(row: Mapping[str, str], column: str) -> float:
    text = row[column].strip()
    try:
        value = float(text)
    except ValueError:
        raise SimulationError(f"{column}: {text!r} is no number") from None
    if not math.isfinite(value) or value > _MOST_SECONDS:
        raise SimulationError(f"{column}: {text!r} is no time that can be simulated")
    if value < 0:
        raise SimulationError(f"{column}: {text} is negative")
    return value


def _count(row: Mapping[str, str], column: str, least: int) -> int:
    text = row[column].strip()
    try:
        value = int(text)
    except ValueError:
        raise SimulationError(f"{column}: {text!r} is no whole number") from None
    if not least <= value <= _MOST_PODS:
        raise SimulationError(f"{column}: {text} is not from {least} to {_MOST_PODS}")
    return value
