"""What an offline database of advisories says of a version."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from supplychain import advisories, osv
from supplychain.osv import Component


def advisory(name: str = "a", ecosystem: str = "PyPI", **affected: Any) -> dict[str, Any]:
    package = {"ecosystem": ecosystem, "name": name}
    return {"id": "PYSEC-1", "modified": "2026-01-02T00:00:00Z", "affected": [{"package": package, **affected}]}


def between(*events: dict[str, str], kind: str = "ECOSYSTEM") -> dict[str, Any]:
    return {"ranges": [{"type": kind, "events": list(events)}]}


def database(folder: Path, *found: dict[str, Any]) -> Path:
    for number, each in enumerate(found):
        (folder / f"{number}.json").write_text(json.dumps(each))
    return folder


FIXED_IN_10 = between({"introduced": "0"}, {"fixed": "1.10"})
TWICE = between({"introduced": "3"}, {"fixed": "1.2"}, {"introduced": "1"}, {"last_affected": "3.5"})


@pytest.mark.parametrize(
    ("affected", "version", "is_affected"),
    [
        pytest.param(FIXED_IN_10, "1.9", True, id="before the fix, by number and not by letter"),
        pytest.param(FIXED_IN_10, "1.10", False, id="the fix itself"),
        pytest.param(FIXED_IN_10, "1.10rc1", True, id="a candidate of the fix"),
        pytest.param(FIXED_IN_10, "2", False, id="after the fix"),
        pytest.param(TWICE, "1.1", True, id="in the first of two ranges in one list"),
        pytest.param(TWICE, "2", False, id="between them"),
        pytest.param(TWICE, "3.5", True, id="the last that is affected"),
        pytest.param(TWICE, "3.5.1", False, id="after the last"),
        pytest.param({"versions": ["1.9"]}, "1.9", True, id="named"),
        pytest.param({"versions": ["1.9"]}, "1.8", False, id="not named"),
        pytest.param(between({"introduced": "0"}, kind="GIT"), "1", False, id="a range of commits"),
    ],
)
def test_a_version_is_compared_with_the_events_of_a_range(
    affected: dict[str, Any], version: str, is_affected: bool, tmp_path: Path
) -> None:
    report = osv.check([Component("PyPI", "a", version)], database(tmp_path, advisory(**affected)))
    assert [each.version for each, _ in report.found] == ([version] if is_affected else [])


@pytest.mark.parametrize(
    ("version", "is_affected"),
    [("3.0.15-1~deb12u1", True), ("3.0.15-1", False), ("1:1.0-1", False)],
    ids=["a backport sorts before", "the fix", "an epoch is after all without one"],
)
def test_versions_of_debian_have_their_own_order_and_release(version: str, is_affected: bool, tmp_path: Path) -> None:
    known = between({"introduced": "0"}, {"fixed": "3.0.15-1"})
    folder = database(tmp_path, advisory("openssl", "Debian:13", **known))
    found = osv.check(
        [Component("Debian:13", "openssl", version), Component("Debian:12", "openssl", "1")], folder
    ).found
    assert [each.version for each, _ in found] == ([version] if is_affected else [])


def test_a_name_is_the_same_however_it_is_written_and_a_withdrawn_advisory_does_not_count(tmp_path: Path) -> None:
    folder = database(tmp_path, advisory("Some.Name", **FIXED_IN_10))
    assert len(osv.check([Component("PyPI", "some-name", "1")], folder).found) == 1
    database(tmp_path, {**advisory("Some.Name", **FIXED_IN_10), "withdrawn": "2026-01-03T00:00:00Z"})
    assert osv.check([Component("PyPI", "some-name", "1")], folder).found == ()


def test_a_zip_is_read_as_it_is_published_and_its_age_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("PYSEC-1.json", json.dumps(advisory(**FIXED_IN_10)))
    (line,) = advisories.compare([Component("PyPI", "a", "1")], path)
    assert line.startswith("a==1: PYSEC-1: ")
    assert capsys.readouterr().out == "advisories: 1 versions compared with 1, the newest of 2026-01-02T00:00:00Z\n"
    monkeypatch.setitem(advisories.ACCEPTED, "PYSEC-1", "not reached by what we call")
    assert advisories.compare([Component("PyPI", "a", "1")], path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "cannot be read", id="not there"),
        pytest.param("no zip", "cannot be read", id="something else"),
        pytest.param({}, "holds no advisories", id="an empty folder"),
        pytest.param({"a.json": "[]"}, "a.json: is no advisory", id="another format"),
    ],
)
def test_a_database_that_cannot_be_used_is_an_error_and_never_a_clean_report(
    content: str | dict[str, str] | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "database"
    if isinstance(content, str):
        path.write_text(content)
    elif content is not None:
        path.mkdir()
        for name, text in content.items():
            (path / name).write_text(text)
    with pytest.raises(osv.DatabaseError, match=message):
        osv.check([], path)
