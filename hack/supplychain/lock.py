"""Checks the locks under hack/requirements without a network: each package has one version, with its hashes.

Pure but for reading the files. Problems are lines made to be shown as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Lists what every other lock of our own ranges is a part of.
WHOLE = "dev"
PARTS = ("runtime", "initializer", "local")
# Those that images hold.
SHIPPED = ("runtime", "initializer")

_PIN = re.compile(r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)(?: ; (?P<marker>[^\\]+?))?")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock; the same name may be there once for each marker."""

    name: str
    version: str
    marker: str
    hashes: frozenset[str]


def read(path: Path) -> tuple[list[Pin], list[str]]:
    """Returns the pins of a lock, and its problems."""
    pins, problems = [], []
    for entry in _entries(path.read_text()):
        words, *options = entry.split(" --hash")
        match = _PIN.fullmatch(words.strip())
        hashes = frozenset(f"--hash{option}".strip() for option in options)
        if match is None:
            problems.append(
                f"{path.name}: {words.strip()[:80]}: is no NAME==VERSION (no URL, path, range or option may stand here)"
            )
        elif not hashes or not all(map(_HASH.fullmatch, hashes)):
            problems.append(f"{path.name}: {match['name']}: has no sha256")
        else:
            pins.append(Pin(match["name"], match["version"], match["marker"] or "", hashes))
    return pins, [*problems, *(f"{path.name}: {name}: is there twice" for name in _twice(pins))]


def all_problems(folder: Path) -> list[str]:
    """Returns the problems of each lock, and those between locks."""
    found = {path.stem: read(path) for path in sorted(folder.glob("*.txt"))}
    problems = [problem for _, wrong in found.values() for problem in wrong]
    whole = {(pin.name, pin.marker): pin for pin in found[WHOLE][0]}
    versions = {(pin.name, pin.version) for pin in found[WHOLE][0]}
    for name in PARTS:
        problems += _differences(name, found[name][0], whole, versions)
    return problems


def _differences(
    name: str, pins: Iterable[Pin], whole: Mapping[tuple[str, str], Pin], versions: set[tuple[str, str]]
) -> Iterator[str]:
    """Returns the differences between locks, since images must contain what was tested."""
    for pin in pins:
        tested = whole.get((pin.name, pin.marker))
        if (pin.name, pin.version) not in versions:
            yield f"{name}.txt: {pin.name}=={pin.version}: {WHOLE}.txt has another version: make lock"
        elif tested is not None and tested.version == pin.version and tested.hashes != pin.hashes:
            yield f"{name}.txt: {pin.name}=={pin.version}: {WHOLE}.txt has other hashes: make lock"


def _entries(text: str) -> Iterator[str]:
    """Lines that are continued, as one; without comments."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        entry = " ".join(line.partition(" #")[0].split())
        if entry and not entry.startswith("#"):
            yield entry


def _twice(pins: Iterable[Pin]) -> list[str]:
    seen: set[tuple[str, str]] = set()
    twice = []
    for pin in pins:
        if (pin.name, pin.marker) in seen:
            twice.append(pin.name)
        seen.add((pin.name, pin.marker))
    return twice
