"""The rules of initializers and the exporter with a local server of Google Cloud Storage's API shape."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.gcsserver import BUCKET, GcsServer
from helpers.httpserver import Answer
from helpers.storagecommand import MARKER, content_of, export, initialize

OBJECTS = {"set/a": b"1", "set/sub/b c": os.urandom(20_000_000), "set/sub/": b"", "other": b"no"}
WANTED = {"a": OBJECTS["set/a"], "sub/b c": OBJECTS["set/sub/b c"]}


@pytest.mark.parametrize("has_md5", [True, False], ids=["MD5", "CRC only"])
def test_all_objects_below_a_prefix_come(has_md5: bool, tmp_path: Path) -> None:
    with GcsServer(dict(OBJECTS), has_md5=has_md5) as server:
        ended = initialize("dataset", f"gs://{BUCKET}/set", tmp_path, server.environ)
    assert ended.code == 0, ended.said
    assert content_of(tmp_path) == WANTED


def test_one_object_comes(tmp_path: Path) -> None:
    with GcsServer(dict(OBJECTS)) as server:
        ended = initialize("dataset", f"gs://{BUCKET}/set/a", tmp_path, server.environ)
    assert ended.code == 0, ended.said
    assert content_of(tmp_path) == {"a": b"1"}


@pytest.mark.parametrize("has_md5", [True, False], ids=["MD5", "CRC only"])
def test_content_of_another_hash_is_not_taken(has_md5: bool, tmp_path: Path) -> None:
    with GcsServer(dict(OBJECTS), has_md5=has_md5) as server:
        server.fault_of = lambda request: Answer(200, b"2") if request.query.get("alt") == "media" else None
        ended = initialize("dataset", f"gs://{BUCKET}/set/a", tmp_path, server.environ)
    assert ended.code == 1
    assert "the hash of the content differs" in ended.last_line
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        pytest.param("gs://no-such/x", "no", id="no bucket"),
        pytest.param(f"gs://{BUCKET}/no/such", "nothing is there", id="empty prefix"),
    ],
)
def test_what_is_not_there_is_a_permanent_error(uri: str, words: str, tmp_path: Path) -> None:
    with GcsServer(dict(OBJECTS)) as server:
        ended = initialize("dataset", uri, tmp_path, server.environ)
    assert ended.code == 1
    assert words in ended.last_line


def test_credentials_that_are_neither_path_nor_json_are_refused_without_being_shown(tmp_path: Path) -> None:
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": '{"private_key": "5ecret'}
    ended = initialize("dataset", f"gs://{BUCKET}/set", tmp_path, environ)
    assert ended.code == 1
    assert "GOOGLE_APPLICATION_CREDENTIALS is neither a file's path nor JSON" in ended.last_line
    assert "5ecret" not in ended.said


def test_an_export_brings_all_files_and_a_second_one_sends_none(tmp_path: Path) -> None:
    # One that goes in one request, and one in pieces.
    files = {"config.json": b"{}", "sub/model.bin": os.urandom(20_000_000)}
    (tmp_path / "sub").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with GcsServer({}) as server:
        ended = export(tmp_path, f"gs://{BUCKET}/trained", server.environ)
        assert ended.code == 0, ended.said
        assert server.objects == {f"trained/{name}": content for name, content in files.items()}
        asked = len(server.requests)
        assert export(tmp_path, f"gs://{BUCKET}/trained", server.environ).code == 0
        assert [request for request in server.requests[asked:] if request.method != "GET"] == []
