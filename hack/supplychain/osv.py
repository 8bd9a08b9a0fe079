"""Known vulnerabilities from a database on this machine, without a network: the OSV format.

A database is a zip file or a folder with one JSON file for each advisory, as the OSV project publishes them for each
ecosystem (docs/security.md tells how to fetch one). Source: https://ossf.github.io/osv-schema/
"""

from __future__ import annotations

import functools
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from debian_inspector.version import Version as DebianVersion
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

PYPI = "PyPI"


@dataclass(frozen=True, slots=True)
class Component:
    """A package in one version. `ecosystem` is as in OSV: "PyPI", or "Debian:13" with names of source packages."""

    ecosystem: str
    name: str
    version: str


class DatabaseError(Exception):
    """The database cannot be read; the message is one line with the path."""


class _Package(msgspec.Struct):
    ecosystem: str = ""
    name: str = ""


class _Event(msgspec.Struct):
    introduced: str = ""
    fixed: str = ""
    last_affected: str = ""


class _Range(msgspec.Struct):
    type: str = ""
    events: list[_Event] = []


class _Affected(msgspec.Struct):
    package: _Package = msgspec.field(default_factory=_Package)
    versions: list[str] = []
    ranges: list[_Range] = []


class Advisory(msgspec.Struct):
    """One advisory, as far as it is used here."""

    id: str
    modified: str = ""
    withdrawn: str = ""
    summary: str = ""
    affected: list[_Affected] = []


@dataclass(frozen=True, slots=True)
class Report:
    """`found` has each affected component once for each advisory; `newest` is the time of the newest advisory."""

    found: tuple[tuple[Component, Advisory], ...]
    advisories: int
    newest: str


def check(components: Iterable[Component], database: Path) -> Report:
    """Compares the components with all advisories of the database. Raises DatabaseError."""
    wanted: dict[tuple[str, str], set[Component]] = {}
    for component in components:
        wanted.setdefault((component.ecosystem, _name(component)), set()).add(component)
    found: list[tuple[Component, Advisory]] = []
    count, newest = 0, ""
    for advisory in _read(database):
        count, newest = count + 1, max(newest, advisory.modified)
        if not advisory.withdrawn:
            found += [(component, advisory) for component in sorted(_affected_by(advisory, wanted), key=repr)]
    if not count:
        raise DatabaseError(
            f"{database}: holds no advisories: one JSON file for each is expected, in a zip or a folder"
        )
    return Report(tuple(sorted(found, key=lambda pair: (pair[0].name, pair[1].id))), count, newest)


def _affected_by(advisory: Advisory, wanted: dict[tuple[str, str], set[Component]]) -> set[Component]:
    hits: set[Component] = set()
    for affected in advisory.affected:
        package = Component(affected.package.ecosystem, affected.package.name, "")
        for component in wanted.get((package.ecosystem, _name(package)), ()):
            if component.version in affected.versions or any(_is_in(component, each) for each in affected.ranges):
                hits.add(component)
    return hits


def _is_in(component: Component, versions: _Range) -> bool:
    """Evaluates the events of a range in the order of their versions, as the schema describes it."""
    if versions.type != "ECOSYSTEM":  # a range of commits tells nothing of a version
        return False
    compare = functools.partial(_compare, component.ecosystem)
    order_of = functools.cmp_to_key(compare)
    inside = False
    for event in sorted(versions.events, key=lambda event: order_of(_at(event))):
        order = compare(component.version, _at(event))
        if event.introduced:
            inside = inside or order >= 0
        elif event.fixed:
            inside = inside and order < 0
        else:
            inside = inside and order <= 0
    return inside


def _at(event: _Event) -> str:
    return event.introduced or event.fixed or event.last_affected


def _compare(ecosystem: str, one: str, other: str) -> int:
    """Returns a negative number, zero or a positive one. "0" is before every version."""
    if one == other:
        return 0
    if "0" in (one, other):
        return -1 if one == "0" else 1
    read: Callable[[str], Any] = _python_version if ecosystem == PYPI else DebianVersion.from_string
    left, right = read(one), read(other)
    return int(left > right) - int(left < right)


def _python_version(text: str) -> Version:
    """Returns the version; one that Python's packaging does not know any more is before all others."""
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0.dev0")


def _name(component: Component) -> str:
    return canonicalize_name(component.name) if component.ecosystem == PYPI else component.name


def _read(database: Path) -> Iterator[Advisory]:
    decoder = msgspec.json.Decoder(Advisory)
    for name, content in _files(database):
        try:
            yield decoder.decode(content)
        except msgspec.MsgspecError as error:
            raise DatabaseError(f"{database}: {name}: is no advisory in the OSV format: {error}") from None


def _files(database: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if database.is_dir():
            for path in sorted(database.rglob("*.json")):
                yield path.name, path.read_bytes()
            return
        with zipfile.ZipFile(database) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".json"):
                    yield name, archive.read(name)
    except (OSError, zipfile.BadZipFile) as error:
        raise DatabaseError(f"{database}: cannot be read: {error}") from None
