"""Fuzzing of what reads storage: URIs, messages with URLs in them, and the listings of servers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from helpers.fuzzing import FUZZ, bounded, documents, mutations, outcome
from tfjob_controller.storage import gs, s3
from tfjob_controller.storage.errors import StorageError, explain
from tfjob_controller.storage.files import RemoteFile, is_own, manifest_of, new_hash
from tfjob_controller.storage.uris import DATASET, MODEL, SCHEMES, Redactor, parse, redact_urls

URIS = (
    b"s3://bucket/some/prefix",
    b"gs://bucket/model.bin",
    b"hf://org/name@main/folder/file",
    b"hf://datasets/org/name",
    b"https://user:word@example.invalid:8443/a/b.tar?X-Signature=abcdef#part",
    b"file:///data/a%20b",
    b"pvc://claim/folder",
)
URI_TOKENS = (
    *(b"://", b"/", b"//", b"@", b":", b"?", b"#", b"%", b"%00", b"%2e%2e", b"..", b"[", b"]", b"[::1]", b" ", b"\n"),
    *(
        b"s3",
        b"hf",
        b"datasets/",
        b"s3://",
        b"https://",
        b"a",
        b"\x00",
        b"\xff",
        b"\xe2\x84\x80",
        b"'",
        b'"',
        b"<",
        b".",
    ),
)
uris = mutations(URIS, URI_TOKENS).map(os.fsdecode)


@FUZZ
@given(uris, st.sampled_from([DATASET, MODEL]))
def test_a_uri_is_read_or_refused_in_one_line(text: str, what: str) -> None:
    with bounded(len(text), bytes_each=1000):
        found = outcome(lambda: parse(text, what), StorageError)
        if isinstance(found, StorageError):
            Redactor({})(str(found))
            return
        event(found.scheme)
        assert found.scheme in SCHEMES
        assert len(found.key) == 64
        assert str(found) == redact_urls(found.text)


SECRET = "S3cr3t-of-a-user"
_PLAIN = st.text(st.characters(codec="ascii", exclude_characters="<>\"'", categories=["L", "N", "P"]), max_size=10)


@FUZZ
@given(
    st.sampled_from(["https", "http", "s3", "HTTPS", "a+b"]),
    st.sampled_from([f"u:{SECRET}@h/a/b", f"{SECRET}@h/a", f"h/a?x={SECRET}", f"h/a?x=')&y={SECRET}", f"h/a#{SECRET}"]),
    _PLAIN.filter(lambda text: "://" not in text),
    mutations([b"the server said: no"], URI_TOKENS).map(lambda data: data.decode("utf-8", "replace")),
)
def test_no_message_shows_what_is_secret_in_a_url(scheme: str, rest: str, before: str, after: str) -> None:
    message = f"{before} {scheme}://{rest} {after}"
    with bounded(len(message), bytes_each=1000):
        line = Redactor({"AWS_SECRET_ACCESS_KEY": "another-" + SECRET})(message + f" another-{SECRET}")
    assert SECRET not in line
    assert SECRET not in redact_urls(message)
    assert len(line) <= 1000
    assert "\n" not in line
    line.encode()


LISTINGS = (
    {"bucket/prefix/a": {"type": "file", "size": 3, "ETag": '"0123456789abcdef0123456789abcdef"'}},
    {"bucket/prefix/a/b": {"size": 3, "md5Hash": "XUFAKrxLKna5cZ2REBfFkg==", "generation": "1"}},
    {"bucket/prefix": {"size": 3, "crc32c": "AAAAAA=="}, "bucket/prefix/": {"size": 0}},
    {"bucket/prefix/a": {"size": 1}, "bucket/prefix/a/../../b": {"size": 1}, "bucket/prefix/.tfjob-x": {"size": 1}},
)
NAME_TOKENS = (
    *(
        b"/",
        b"..",
        b".",
        b"\x00",
        b"\\",
        b"bucket/prefix/",
        b"a",
        b"\xff",
        b"\n",
        b"\x1b",
        b"/a",
        b".tfjob-",
        b"\xc2\x85",
    ),
)


@dataclass
class Listed:
    """Stands for the client of a bucket: it lists what a server says."""

    found: Any

    def find(self, root: str, detail: bool) -> Any:
        return self.found


@st.composite
def listings(draw: st.DrawFn) -> Any:
    if draw(st.booleans()):
        names = st.lists(mutations([b"bucket/prefix/a/b"], NAME_TOKENS).map(os.fsdecode), max_size=4)
        return {name: {"size": draw(st.integers())} for name in draw(names)}
    try:
        found = json.loads(draw(documents(LISTINGS)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@FUZZ
@given(listings(), st.sampled_from([s3.s3_source, gs.gs_source]))
def test_any_listing_gives_files_below_the_target_folder_or_one_storage_error(
    listing: Mapping[str, Any], source_of: Callable[..., Any]
) -> None:
    where = parse("s3://bucket/prefix")

    def read() -> list[RemoteFile]:
        try:
            return list(manifest_of(source_of(where, {}).files(), where).files)
        except Exception as error:
            raise explain(error, where) from None

    size = sum(len(str(each)) for each in listing.items())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3, "connect", lambda environ: Listed(listing))
        patch.setattr(gs, "connect", lambda environ: Listed(listing))
        with bounded(size, bytes_each=1000):
            files = outcome(read, StorageError)
    if isinstance(files, StorageError):
        event("refused")
        assert "\n" not in Redactor({})(str(files))
        return
    event("read")
    for file in files:
        path = os.path.normpath(f"/target/{file.name}")
        assert path.startswith("/target/")
        assert "\0" not in file.name
        assert not is_own(file.name)
        assert isinstance(file.size, int)
        new_hash(file.digest, file.size)
