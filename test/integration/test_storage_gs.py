"""Initializers with a local server of Google Cloud Storage's API shape: its hashes and credentials."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.gcsserver import BUCKET, GcsServer
from helpers.httpserver import Answer
from helpers.storagecommand import MARKER, content_of, initialize

OBJECTS = {"set/a": b"1", "set/sub/b c": os.urandom(20_000_000), "set/sub/": b"", "other": b"no"}
WANTED = {"a": OBJECTS["set/a"], "sub/b c": OBJECTS["set/sub/b c"]}


def test_objects_without_an_md5_come_and_those_of_consoles_for_folders_do_not(tmp_path: Path) -> None:
    with GcsServer(dict(OBJECTS), has_md5=False) as server:
        ended = initialize("dataset", f"gs://{BUCKET}/set", tmp_path, server.environ)
    assert ended.code == 0, ended.said
    assert content_of(tmp_path) == WANTED


@pytest.mark.parametrize("has_md5", [True, False], ids=["MD5", "CRC only"])
def test_content_of_another_hash_is_not_taken(has_md5: bool, tmp_path: Path) -> None:
    with GcsServer(dict(OBJECTS), has_md5=has_md5) as server:
        server.fault_of = lambda request: Answer(200, b"2") if request.query.get("alt") == "media" else None
        ended = initialize("dataset", f"gs://{BUCKET}/set/a", tmp_path, server.environ)
    assert ended.code == 1
    assert "the hash of the content differs" in ended.last_line
    assert not (tmp_path / MARKER).exists()


def test_credentials_that_are_neither_path_nor_json_are_refused_without_being_shown(tmp_path: Path) -> None:
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": '{"private_key": "5ecret'}
    ended = initialize("dataset", f"gs://{BUCKET}/set", tmp_path, environ)
    assert ended.code == 1
    assert "GOOGLE_APPLICATION_CREDENTIALS is neither a file's path nor JSON" in ended.last_line
    assert "5ecret" not in ended.said
