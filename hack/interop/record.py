"""The record of one run with the program of another project: versions, date, and which rules held for which kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

RESULTS = Path(__file__).parent / "results"


class Record(msgspec.Struct, frozen=True):
    """`rules` has for each rule the kinds of jobs, and whether the rule held. `date` is the day of the run."""

    name: str
    version: str
    kubernetes: str
    date: str
    rules: dict[str, dict[str, bool]]


def rules_of(seen: Mapping[str, Mapping[str, bool]]) -> dict[str, dict[str, bool]]:
    """Returns the rules as text; `seen` has the names of test functions."""
    return {name.removeprefix("test_").replace("_", " "): dict(kinds) for name, kinds in seen.items()}


def write(record: Record, folder: Path = RESULTS) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{record.name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    return path


def read_all(folder: Path = RESULTS) -> list[Record]:
    """Returns all records, by name."""
    return [msgspec.json.decode(path.read_bytes(), type=Record) for path in sorted(folder.glob("*.json"))]
