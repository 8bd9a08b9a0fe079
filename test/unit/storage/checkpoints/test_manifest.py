"""Which manifests are refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tfjob_controller.storage.checkpoints.layout import ManifestName
from tfjob_controller.storage.checkpoints.manifest import BrokenCheckpointError, read_manifest

ID = "0123456789abcdef0123456789abcdef"
NAME = ManifestName.made(1, datetime(2026, 1, 1, tzinfo=UTC), ID)
GOOD = {
    "version": 1,
    "name": "c-1",
    "uploadId": ID,
    "node": 0,
    "kind": "folder",
    "files": [{"name": "a/b", "size": 3, "sha256": "0" * 64}],
    "bytes": 3,
    "time": "2026-01-01T00:00:00Z",
    "step": 1,
}


def files(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "size": 3 if not number else 0, "sha256": "0" * 64} for number, name in enumerate(names)]


def test_a_manifest_is_read_as_it_was_written() -> None:
    found = read_manifest(json.dumps(GOOD).encode(), NAME)
    assert json.loads(found.encode()) == GOOD


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"version": 2}, id="another version"),
        pytest.param({"name": "../x"}, id="a path as name"),
        pytest.param({"uploadId": "f" * 32}, id="another upload"),
        pytest.param({"kind": "file"}, id="a file that is a folder"),
        pytest.param({"files": []}, id="no files"),
        pytest.param({"files": files("../../etc/passwd")}, id="leaves the folder"),
        pytest.param({"files": files("a", "a")}, id="twice"),
        pytest.param({"files": files("a", "a/b")}, id="a file and a folder"),
        pytest.param({"files": files(".tfjob-initialized.json")}, id="reserved"),
        pytest.param({"files": files("/".join("d" * 200))}, id="deep"),
        pytest.param({"files": files("x" * 5000)}, id="long file name"),
        pytest.param({"files": [{"name": "a", "size": -3, "sha256": "0" * 64}]}, id="negative size"),
        pytest.param({"files": [{"name": "a", "size": 3, "sha256": "no"}]}, id="no hash"),
        pytest.param({"bytes": 4}, id="sizes contradict"),
        pytest.param({"step": "1"}, id="text as step"),
    ],
)
def test_a_manifest_that_is_not_as_we_write_them_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BrokenCheckpointError):
        read_manifest(json.dumps({**GOOD, **change}).encode(), NAME)


@pytest.mark.parametrize("content", [b"[]", b"\xff", b"[" * 100_000], ids=lambda content: content[:3])
def test_what_is_no_manifest_at_all_is_refused(content: bytes) -> None:
    with pytest.raises(BrokenCheckpointError):
        read_manifest(content, NAME)


def test_too_many_files_are_refused() -> None:
    many = [{"name": str(number), "size": 0, "sha256": "0" * 64} for number in range(100_001)]
    with pytest.raises(BrokenCheckpointError):
        read_manifest(json.dumps({**GOOD, "files": many, "bytes": 0}).encode(), NAME)
