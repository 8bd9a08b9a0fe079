"""A history in a real S3 server: what is written, listed page by page, read and removed; and faults of the server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.s3server import SECRET_KEY, S3Server
from tfjob_controller.client.history.filesystems import Filesystem, open_filesystem
from tfjob_controller.client.history.reading import History
from tfjob_controller.client.history.record import MAX_LOG_BYTES, HistoryError, LogFile, Record
from tfjob_controller.client.history.store import HistoryStore

LOG = LogFile("master-0", "tensorflow", 5)


def record(number: int) -> Record:
    ended = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    return Record(
        "kubeflow.org/v1alpha1", "TFJob", "team", f"job-{number}", f"uid-{number}", "Failed", ended, logs=[LOG]
    )


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environ.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def bucket(server: S3Server) -> str:
    name = f"history-{uuid.uuid4().hex}"
    server.client().create_bucket(Bucket=name)
    return name


@pytest.fixture
def files(server: S3Server, bucket: str) -> Filesystem:
    return open_filesystem(f"s3://{bucket}/prod", server.environ)


def keys(server: S3Server, bucket: str) -> list[str]:
    client: Any = server.client()
    return [entry["Key"] for entry in client.list_objects_v2(Bucket=bucket).get("Contents", ())]


def test_a_job_is_two_objects_and_is_read_back(server: S3Server, bucket: str, files: Filesystem) -> None:
    store = HistoryStore(files)
    store.write_log(record(1).entry, LOG, b"x" * 10 + b"y" * MAX_LOG_BYTES)
    store.write(record(1))
    assert keys(server, bucket) == [
        "prod/v1/team/jobs/20260101T000001Z~TFJob~job-1~uid-1~Failed.json",
        "prod/v1/team/logs/uid-1/master-0.tensorflow.log.gz",
    ]
    history = History.open(f"s3://{bucket}/prod")
    assert history.namespaces() == ["team"]
    read = history.job("job-1", "team")
    assert read == record(1)
    assert history.log(read) == b"y" * MAX_LOG_BYTES


def test_a_list_is_more_than_a_page_and_the_newest_come_first(server: S3Server, bucket: str, files: Filesystem) -> None:
    client = server.client()
    for number in range(1001):
        client.put_object(Bucket=bucket, Key=f"prod/v1/team/jobs/{record(number).entry.file}", Body=b"{}")
    entries = HistoryStore(files).entries("team")
    assert len(entries) == 1001
    assert [entry.name for entry in entries[:2]] == ["job-1000", "job-999"]
    assert len(HistoryStore(files).contents("team").sizes) == 1001


def test_an_empty_object_is_no_record_and_no_log(server: S3Server, bucket: str, files: Filesystem) -> None:
    store = HistoryStore(files)
    store.write_log(record(1).entry, LOG, b"hello")
    store.write(record(1))
    for key in keys(server, bucket):
        server.client().put_object(Bucket=bucket, Key=key, Body=b"")
    with pytest.raises(ValueError, match="it is empty"):
        store.read(record(1).entry)
    with pytest.raises(HistoryError, match="it is empty"):
        History.open(f"s3://{bucket}/prod").job("job-1", "team")
    assert store.read_log(record(1).entry, LOG) == b""


def test_what_another_process_wrote_is_seen_at_once(files: Filesystem) -> None:
    store = HistoryStore(files)
    assert store.entries("team") == []
    store.write(record(1))
    assert len(store.entries("team")) == 1
    store.write(record(2))
    assert len(store.entries("team")) == 2


def test_a_removed_job_leaves_no_object(server: S3Server, bucket: str, files: Filesystem) -> None:
    store = HistoryStore(files)
    store.write_log(record(1).entry, LOG, b"hello")
    store.write(record(1))
    store.remove(record(1).entry)
    store.remove(record(1).entry)
    assert keys(server, bucket) == []


def test_logs_without_a_record_are_found_and_removed(server: S3Server, bucket: str, files: Filesystem) -> None:
    store = HistoryStore(files)
    store.write_log(record(1).entry, LOG, b"hello")
    (paths,) = store.contents("team").leftovers.values()
    store.remove_files(paths)
    assert keys(server, bucket) == []


def test_a_bucket_that_does_not_exist_is_one_line_without_secrets(server: S3Server) -> None:
    with pytest.raises(HistoryError) as refused:
        History.open("s3://no-such-bucket/prod").job("train", "team")
    assert "no-such-bucket" in str(refused.value)
    assert SECRET_KEY not in str(refused.value)
    with pytest.raises(Exception, match="bucket"):
        HistoryStore(open_filesystem("s3://no-such-bucket/prod", server.environ)).write(record(1))


def test_a_server_that_is_away_is_an_error(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with pytest.raises(HistoryError, match="connect"):
        History.open("s3://bucket/prod").jobs("team")
