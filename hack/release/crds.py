"""Checks that these CRDs are compatible with those of a release. The rules are in release.schemas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from release.schemas import Break, compare

Crd = Mapping[str, Any]
_NAMES = ("plural", "singular", "kind", "listKind")


@dataclass(frozen=True, slots=True, order=True)
class Incompatibility:
    """An incompatible change of the CRD with that name; `version` is empty if it concerns all versions."""

    crd: str
    version: str
    path: str
    rule: str
    why: str = ""

    def __str__(self) -> str:
        place = " ".join(filter(None, (self.crd, self.version, self.path)))
        return f"{place}: {self.rule}: {self.why}"


def incompatibilities(old: Iterable[Crd], new: Iterable[Crd]) -> Iterator[Incompatibility]:
    """Yields all incompatible changes, CRD by CRD. New CRDs, and new versions of old ones, are compatible."""
    there = {each["metadata"]["name"]: each for each in new}
    for each in old:
        name = each["metadata"]["name"]
        if name not in there:
            yield Incompatibility(name, "", "", "removed", "the kind is gone, and its objects with it")
            continue
        for version, found in _of_crd(each["spec"], there[name]["spec"]):
            yield Incompatibility(name, version, found.path, found.rule, found.why)


def _of_crd(old: Crd, new: Crd) -> Iterator[tuple[str, Break]]:
    for name in ("group", "scope"):
        if old[name] != new[name]:
            yield "", Break("", name, f"was {old[name]}, is {new[name]}")
    for name in _NAMES:
        if old["names"].get(name) != new["names"].get(name):
            yield "", Break("", "names", f"{name} was {old['names'].get(name)}, is {new['names'].get(name)}")
    for short in old["names"].get("shortNames", ()):
        if short not in new["names"].get("shortNames", ()):
            yield "", Break("", "names", f"the short name {short} is gone")
    versions = {each["name"]: each for each in new["versions"]}
    for each in old["versions"]:
        yield from ((each["name"], found) for found in _of_version(each, versions.get(each["name"])))


def _of_version(old: Crd, new: Crd | None) -> Iterator[Break]:
    if new is None:
        yield Break("", "removed", "the version is gone: files and stored objects of it are refused")
        return
    if old["served"] and not new["served"]:
        yield Break("", "served", "the version is no longer served")
    for name, before in old.get("subresources", {}).items():
        after = new.get("subresources", {}).get(name)
        if after != before:
            yield Break("", "subresource", f"{name} was {dict(before)}, is {after}")
    fields = {each["jsonPath"] for each in new.get("selectableFields", ())}
    for each in old.get("selectableFields", ()):
        if each["jsonPath"] not in fields:
            yield Break("", "selectable field", f"{each['jsonPath']} is gone")
    yield from compare(old["schema"]["openAPIV3Schema"], new["schema"]["openAPIV3Schema"])


@dataclass(frozen=True, slots=True)
class Verdict:
    """Incompatible changes that are not recorded as exceptions, and exceptions that match no change (any more)."""

    unwanted: tuple[Incompatibility, ...]
    needless: tuple[Incompatibility, ...]


def judge(found: Iterable[Incompatibility], wanted: Iterable[Incompatibility]) -> Verdict:
    """Compares changes with exceptions. `why` is ignored: that of an exception is its reason."""

    def key(each: Incompatibility) -> tuple[str, str, str, str]:
        return each.crd, each.version, each.path, each.rule

    found, wanted = list(found), list(wanted)
    seen, excused = {key(each) for each in found}, {key(each) for each in wanted}
    return Verdict(
        tuple(each for each in found if key(each) not in excused),
        tuple(each for each in wanted if key(each) not in seen),
    )
