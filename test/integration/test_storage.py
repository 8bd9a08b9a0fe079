"""Initializers and the exporter with storages of every scheme: what holds for all of them.

test_storage_*.py have what differs, and a web server, to which nothing is exported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.storagecommand import MARKER, content_of, export, initialize
from helpers.storages import SCHEMES, Storage, storage

FILES = {
    "config.json": b"{}",
    "sub/odd name +%20ü.bin": b"odd",
    "sub/part.bin": os.urandom(100_000),
    "empty": b"",
    # In several blocks, and in parts when it is exported.
    "big.bin": os.urandom(20_000_000),
}
NOWHERE = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", "HF_ENDPOINT": "http://127.0.0.1:1"}


@pytest.fixture(params=SCHEMES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    with storage(request.param, FILES, tmp_path / "server") as stored:
        yield stored


def test_all_files_below_a_uri_come_and_a_second_run_needs_no_server(stored: Storage, tmp_path: Path) -> None:
    target = tmp_path / "target"
    ended = initialize("model", stored.uri, target, stored.environ)
    assert ended.code == 0, ended.said
    assert content_of(target) == FILES
    marker = json.loads((target / MARKER).read_text())
    total = sum(map(len, FILES.values()))
    assert (marker["uri"], marker["files"], marker["bytes"]) == (stored.uri, len(FILES), total)
    again = initialize("model", stored.uri, target, NOWHERE)
    assert again.code == 0, again.said
    assert [event["event"] for event in again.events] == ["nothing to fetch: an earlier run has fetched all of it"]


def test_another_uri_is_fetched_into_the_same_folder_and_one_file_has_its_last_name(
    stored: Storage, tmp_path: Path
) -> None:
    target, uri = tmp_path / "target", f"{stored.uri}/sub/part.bin"
    assert initialize("model", f"{stored.uri}/config.json", target, stored.environ).code == 0
    ended = initialize("model", uri, target, stored.environ)
    assert ended.code == 0, ended.said
    assert (target / "part.bin").read_bytes() == FILES["sub/part.bin"]
    assert json.loads((target / MARKER).read_text())["uri"] == uri


def test_what_does_not_exist_is_a_permanent_error_in_one_last_line(stored: Storage, tmp_path: Path) -> None:
    # The beginning of a name is no folder.
    for name in ("no/such", "su"):
        ended = initialize("model", f"{stored.uri}/{name}", tmp_path / "target", stored.environ)
        assert ended.code == 1
        assert ended.last_line.startswith("tfjob-controller: initialize model: ")
        assert f"{stored.uri}/{name}" in ended.last_line
        assert not (tmp_path / "target" / MARKER).exists()


def test_an_export_brings_all_files_and_a_second_one_what_has_changed(stored: Storage, tmp_path: Path) -> None:
    source, before = tmp_path / "source", stored.content()
    for name, content in FILES.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    (source / MARKER).write_text("{}")
    trained = f"{stored.uri}/trained"
    ended = export(source, trained, stored.environ)
    assert ended.code == 0, ended.said
    assert stored.content() == before | {f"trained/{name}": content for name, content in FILES.items()}
    (source / "config.json").write_bytes(b"trained on")
    again = export(source, trained, stored.environ)
    assert again.code == 0, again.said
    assert stored.content()["trained/config.json"] == b"trained on"
    if stored.uri.startswith(("s3:", "gs:")):  # folders are copied again, and the hub has one commit of all files
        assert [event["event"] for event in again.events].count("file already there") == len(FILES) - 1
