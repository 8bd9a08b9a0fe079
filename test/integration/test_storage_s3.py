"""Initializers and the exporter with a real S3 server: what only S3 has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.s3server import SECRET_KEY, S3Server
from helpers.storagecommand import content_of, export, initialize
from tfjob_controller.storage.errors import StorageError, explain
from tfjob_controller.storage.s3 import s3_source
from tfjob_controller.storage.uris import parse

BUCKET = "ml-datasets"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        server.client().create_bucket(Bucket=BUCKET)
        yield server


@pytest.fixture
def client(server: S3Server) -> Any:
    return server.client()


def test_without_credentials_a_bucket_is_read_as_the_public_is(server: S3Server, client: Any, tmp_path: Path) -> None:
    environ = {name: value for name, value in server.environ.items() if "KEY" not in name}
    client.put_object(Bucket=BUCKET, Key="public/x", Body=b"for all", ACL="public-read")
    client.put_object(Bucket=BUCKET, Key="other/not-wanted", Body=b"no")
    ended = initialize("dataset", f"s3://{BUCKET}/public", tmp_path / "public", environ)
    assert ended.code == 0, ended.said
    denied = initialize("dataset", f"s3://{BUCKET}/other", tmp_path / "other", environ)
    assert denied.code == 1
    assert f"s3://{BUCKET}/other: not-wanted: access is denied" in denied.last_line


def test_a_server_that_is_not_there_is_an_error_that_may_pass(server: S3Server, tmp_path: Path) -> None:
    environ = {**server.environ, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}
    ended = initialize("dataset", f"s3://{BUCKET}/imagenet", tmp_path, environ, "--retries=1")
    assert ended.code == 203
    assert "ould not connect" in ended.last_line
    assert SECRET_KEY not in ended.said


def test_an_object_of_many_parts_comes_whole(server: S3Server, client: Any, tmp_path: Path) -> None:
    content = os.urandom(12_000_000)
    upload = client.create_multipart_upload(Bucket=BUCKET, Key="parts/x")["UploadId"]
    where = {"Bucket": BUCKET, "Key": "parts/x", "UploadId": upload}
    pieces = [content[:6_000_000], content[6_000_000:]]
    parts = [
        {"PartNumber": number, "ETag": client.upload_part(PartNumber=number, Body=piece, **where)["ETag"]}
        for number, piece in enumerate(pieces, 1)
    ]
    client.complete_multipart_upload(MultipartUpload={"Parts": parts}, **where)
    # What consoles create for a folder.
    client.put_object(Bucket=BUCKET, Key="parts/", Body=b"")
    assert initialize("dataset", f"s3://{BUCKET}/parts", tmp_path, server.environ).code == 0
    assert content_of(tmp_path) == {"x": content}


def test_an_object_that_is_replaced_while_it_is_fetched_is_no_mixture(
    server: S3Server, client: Any, tmp_path: Path
) -> None:
    """Played through the source itself: its listing is older than the object."""
    client.put_object(Bucket=BUCKET, Key="changing/x", Body=b"one")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environ.items():
            patch.setenv(name, value)
        source = s3_source(parse(f"s3://{BUCKET}/changing"), server.environ)
        (file,) = source.files()
        client.put_object(Bucket=BUCKET, Key="changing/x", Body=b"two")
        with pytest.raises((StorageError, OSError)) as refused:
            list(source.read(file, 0))
    fault = explain(refused.value, file.name)
    assert "has changed" in str(fault)
    assert fault.is_transient


@pytest.mark.parametrize(("encryption", "is_md5"), [("AES256", True), ("aws:kms", False)])
def test_the_etag_of_what_kms_encrypts_is_no_hash_of_the_content(
    encryption: str, is_md5: bool, server: S3Server, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put_object(Bucket=BUCKET, Key="encrypted/x", Body=b"one", ServerSideEncryption=encryption)
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    source = s3_source(parse(f"s3://{BUCKET}/encrypted/x"), server.environ)
    (file,) = source.files()
    assert source.is_digest_of_content(file) is is_md5


@pytest.mark.parametrize("key", ["up/../../escaped", "up//double"], ids=str)
def test_a_key_that_would_leave_the_folder_is_refused(key: str, server: S3Server, client: Any, tmp_path: Path) -> None:
    target = tmp_path / "target"
    client.put_object(Bucket=BUCKET, Key=key, Body=b"evil")
    try:
        ended = initialize("dataset", f"s3://{BUCKET}/up", target, server.environ)
    finally:
        client.delete_object(Bucket=BUCKET, Key=key)
    assert ended.code == 1
    assert "refused" in ended.last_line
    assert content_of(tmp_path) == {}


def test_an_export_to_a_bucket_that_is_not_there_is_a_permanent_error(server: S3Server, tmp_path: Path) -> None:
    (tmp_path / "model").write_text("x")
    ended = export(tmp_path, "s3://no-such-bucket/x", server.environ)
    assert ended.code == 1
    assert "not found" in ended.last_line
