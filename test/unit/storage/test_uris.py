"""The rules of uris.py."""

from __future__ import annotations

import re
import time

import pytest

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.uris import DATASET, MODEL, parse, redact_urls


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("S3://bucket/a/b/", ("s3", "bucket", "a/b", "", "")),
        ("s3://bucket/a?b#c", ("s3", "bucket", "a?b#c", "", "")),
        ("hf://meta-llama/Llama-3-8b", ("hf", "meta-llama/Llama-3-8b", "", "", MODEL)),
        ("hf://org/name@v1.0/sub/folder", ("hf", "org/name", "sub/folder", "v1.0", MODEL)),
        ("hf://org/name@refs%2Fpr%2F1", ("hf", "org/name", "", "refs/pr/1", MODEL)),
        ("hf://datasets/org/name", ("hf", "org/name", "", "", DATASET)),
        ("https://host:8443/a/b.tar?x=1", ("https", "host", "a/b.tar", "", "")),
        ("file:///data/a%20b/", ("file", "", "/data/a b", "", "")),
        ("file://localhost/data", ("file", "", "/data", "", "")),
        ("pvc://claim/path", ("pvc", "claim", "path", "", "")),
    ],
)
def test_a_uri_is_taken_apart(text: str, parts: tuple[str, ...]) -> None:
    uri = parse(text, MODEL)
    assert (uri.scheme, uri.place, uri.path, uri.revision, uri.repository_type) == parts


def test_a_repository_is_of_the_kind_that_is_initialized_unless_it_says_so() -> None:
    assert parse("hf://org/name", DATASET).repository_type == DATASET
    assert parse("hf://models/org/name", DATASET).repository_type == MODEL


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("/data", "must begin with one of s3://, gs://", id="a path"),
        pytest.param("ftp://host/x", "the scheme 'ftp' is unknown", id="unknown scheme"),
        pytest.param("s3:///key", "a bucket's or claim's name must follow", id="no bucket"),
        pytest.param("s3://key:secret@bucket/x", "without any credentials", id="credentials of a bucket"),
        pytest.param("hf://", "write hf://organisation/name", id="no repository"),
        pytest.param("hf://org/na me", "write hf://organisation/name", id="no name of a repository"),
        pytest.param("hf://org/name@", "must follow the @", id="no revision"),
        pytest.param("http:///x", "a host must follow", id="no host"),
        pytest.param("https://host/folder/", "it must name a file", id="a folder"),
        pytest.param("file://relative/x", "write file:///an/absolute/path", id="relative file"),
        pytest.param("file:///", "write file:///an/absolute/path", id="the root"),
    ],
)
def test_what_is_no_uri_is_refused_with_a_remedy(text: str, words: str) -> None:
    with pytest.raises(StorageError, match=re.escape(words)) as refused:
        parse(text)
    assert "secret" not in str(refused.value)
    assert not refused.value.is_transient


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pw@host/x?sig=abc#frag", "https://host/x?***"),
        ("https://user:p@w@host/x", "https://host/x"),
        ("https://host/x#token", "https://host/x#***"),
        ("get 'http://a/b?c=d', and (http://u:p@e/f).", "get 'http://a/b?***', and (http://e/f)."),
        ("hf://org/name@main/x", "hf://org/name@main/x"),
        ("http://host/x?sig=abc: denied", "http://host/x?***: denied"),
        ("no url at all? yes", "no url at all? yes"),
    ],
)
def test_users_queries_and_fragments_of_urls_are_hidden(text: str, shown: str) -> None:
    assert redact_urls(text) == shown
    assert redact_urls(shown) == shown


def test_a_uri_shows_nothing_secret() -> None:
    uri = parse("https://user:pa55@host/x?sig=5ecret")
    assert str(uri) == "https://host/x?***"
    assert "5ecret" not in repr(uri)
    assert "pa55" not in repr(uri)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("s3://b/x", "s3://b/y", False),
        ("s3://b/x", "s3://b/x", True),
        ("https://u:1@h/x", "https://u:2@h/x", True),
        ("https://h/x?version=1", "https://h/x?version=2", False),
        ("hf://o/n@a", "hf://o/n@b", False),
        ("hf://o/n", "hf://datasets/o/n", False),
    ],
)
def test_a_key_distinguishes_uris_but_not_their_users(one: str, other: str, is_same: bool) -> None:
    assert (parse(one).key == parse(other).key) is is_same


def test_a_long_message_is_redacted_in_linear_time() -> None:
    begin = time.thread_time()
    assert redact_urls("a" * 200_000 + "://user:word@host") == "a" * 200_000 + "://host"
    assert time.thread_time() - begin < 2.0


def test_a_uri_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(StorageError, match="not UTF-8"):
        parse("https://host/a\udcff")
