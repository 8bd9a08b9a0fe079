"""The rules of initializers with a real web server that has faults."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.certificates import server_context
from helpers.fileserver import Fault, FileServer
from helpers.httpserver import Answer, HttpServer
from helpers.storagecommand import MARKER, Running, await_part, content_of, initialize, run_afresh
from localcluster.certificates import of_loopback

CONTENT = os.urandom(5_000_000)


def only(*numbers: int, fault: Fault) -> Callable[[int], Fault | None]:
    return lambda number: fault if number in numbers else None


def always_after(first: int, fault: Fault) -> Callable[[int], Fault | None]:
    return lambda number: fault if number >= first else None


@pytest.mark.parametrize("has_ranges", [True, False], ids=["ranges", "no ranges"])
def test_a_file_comes_whole_and_is_not_unpacked(has_ranges: bool, tmp_path: Path) -> None:
    with FileServer(CONTENT, has_ranges=has_ranges) as server:
        ended = initialize("dataset", server.url, tmp_path)
    assert ended.code == 0, ended.said
    assert content_of(tmp_path) == {"data.tar.gz": CONTENT}


@pytest.mark.parametrize(
    ("has_ranges", "etag", "asked_at_last"),
    [
        pytest.param(True, '"one"', "bytes=3000000-", id="goes on with the rest"),
        pytest.param(False, '"one"', "bytes=3000000-", id="server gives all again"),
        pytest.param(True, "", "", id="nothing says that it is the same file"),
    ],
)
def test_a_download_continues_after_a_cut_connection_if_that_is_safe(
    has_ranges: bool, etag: str, asked_at_last: str, tmp_path: Path
) -> None:
    faults = only(1, fault=Fault(cut_after=3_000_000))
    with FileServer(CONTENT, has_ranges=has_ranges, etag=etag, fault_of=faults) as server:
        ended = initialize("dataset", server.url, tmp_path)
    assert ended.code == 0, ended.said
    assert content_of(tmp_path) == {"data.tar.gz": CONTENT}
    assert server.ranges[-1] == asked_at_last


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        pytest.param(Fault(status=404), 1, "not found (HTTP 404", id="not found"),
        pytest.param(Fault(status=500), 203, "HTTP 500", id="server's error"),
    ],
)
def test_the_exit_code_says_whether_another_try_can_help(fault: Fault, code: int, words: str, tmp_path: Path) -> None:
    with FileServer(CONTENT, fault_of=always_after(0, fault)) as server:
        ended = initialize("dataset", server.url, tmp_path, {}, "--retries=1")
    assert ended.code == code
    assert words in ended.last_line
    assert server.url in ended.last_line


@pytest.mark.parametrize(
    "fault_of",
    [
        pytest.param(always_after(1, Fault(cut_after=0)), id="nothing comes"),
        pytest.param(always_after(0, Fault(told_size=5_000_007)), id="less than was told comes"),
        pytest.param(always_after(1, Fault(told_size=4_999_993)), id="another size than at first"),
    ],
)
def test_a_partial_download_is_never_taken_for_whole(fault_of: Callable[[int], Fault | None], tmp_path: Path) -> None:
    # Of a run before, for another URI.
    (tmp_path / MARKER).write_text("{}")
    with FileServer(CONTENT, fault_of=fault_of) as server:
        ended = initialize("dataset", server.url, tmp_path, {}, "--retries=1")
    assert ended.code == 203
    assert not (tmp_path / "data.tar.gz").exists()
    assert not (tmp_path / MARKER).exists()


def test_a_file_that_changes_on_the_way_is_no_mixture(tmp_path: Path) -> None:
    with FileServer(CONTENT, fault_of=only(1, fault=Fault(cut_after=3_000_000))) as server:

        def change(number: int) -> Fault | None:
            if number == 1:
                server.etag, server.content = '"two"', bytes(reversed(CONTENT))
            return None

        server.fault_of = change
        ended = initialize("dataset", server.url, tmp_path, {}, "--retries=1")
        assert ended.code == 203
        assert "has changed" in ended.last_line
        again = initialize("dataset", server.url, tmp_path)
    assert again.code == 0, again.said
    assert content_of(tmp_path) == {"data.tar.gz": bytes(reversed(CONTENT))}


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGKILL, -9, id="kill -9"), pytest.param(signal.SIGTERM, 143, id="SIGTERM")],
)
def test_an_interrupted_run_is_continued(number: signal.Signals, code: int, tmp_path: Path) -> None:
    content = os.urandom(50_000_000)
    hold = threading.Event()
    with FileServer(content, fault_of=only(1, fault=Fault(cut_after=40_000_000, hold=hold))) as server:
        arguments = ["initialize", "dataset", f"--target={tmp_path}"]
        with Running(arguments, {"STORAGE_URI": server.url}) as running:
            await_part(tmp_path, 35_000_000)
            ended = running.signal(number)
        assert ended.code == code
        if number is signal.SIGTERM:
            assert ended.last_line == (
                "tfjob-controller: initialize dataset: stopped by a signal; a new run continues from here"
            )
        assert list(content_of(tmp_path)) != ["data.tar.gz"]
        again = initialize("dataset", server.url, tmp_path)
    hold.set()
    assert again.code == 0, again.said
    assert content_of(tmp_path) == {"data.tar.gz": content}
    # Of what a run before left, the end is not trusted: nothing but a hash could tell what a power cut did to it.
    assert 0 < int(server.ranges[-1].removeprefix("bytes=").removesuffix("-")) <= 40_000_000


def test_nothing_that_is_secret_in_a_url_is_shown_or_kept(tmp_path: Path) -> None:
    with FileServer(CONTENT, fault_of=lambda number: Fault(status=503) if number == 1 else None) as server:
        uri = f"http://someone:pa55w0rd@{server.host}/data.bin?X-Amz-Signature=5ecre7%2Fsignature&a=b"
        ended = initialize("dataset", uri, tmp_path)
        assert ended.code == 0, ended.said
        assert server.requests[-1].target == "/data.bin?X-Amz-Signature=5ecre7%2Fsignature&a=b"
        refused = initialize("dataset", uri.replace("data.bin", "other.bin"), tmp_path, {}, "--retries=1")
        server.fault_of = always_after(0, Fault(status=403))
        denied = initialize("dataset", uri.replace("data.bin", "third.bin"), tmp_path)
    assert denied.code == 1
    kept = (tmp_path / MARKER).read_text() if (tmp_path / MARKER).exists() else ""
    for said in (ended.said, refused.said, denied.said, kept):
        assert "pa55w0rd" not in said
        assert "5ecre7" not in said
    assert f"http://{server.host}/third.bin?***: access is denied" in denied.last_line


@pytest.mark.parametrize(
    ("path", "words"),
    [
        pytest.param("/folder/", "it must name a file", id="a folder"),
        pytest.param("/a/..%2F..%2Fescaped", "refused", id="a name with slashes"),
        pytest.param("/a/%2e%2e", "refused", id="the folder above"),
    ],
)
def test_an_invalid_name_is_refused(path: str, words: str, tmp_path: Path) -> None:
    with FileServer(CONTENT) as server:
        ended = initialize("dataset", f"http://{server.host}{path}", tmp_path / "target")
    assert ended.code == 1
    assert words in ended.last_line
    assert list(tmp_path.rglob("*escaped*")) == []


def test_files_are_not_exported_to_a_web_server(tmp_path: Path) -> None:
    from helpers.storagecommand import export

    ended = export(tmp_path, "http://127.0.0.1:1/x")
    assert ended.code == 1
    assert "cannot be exported to a web server" in ended.last_line


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that is its own authority, good for 127.0.0.1, and its key."""
    return of_loopback(tmp_path_factory.mktemp("pki"), "me")


def redirecting(to: str, pair: tuple[Path, Path]) -> HttpServer:
    context = server_context(*pair)
    return HttpServer(lambda _: Answer(302, b"", {"Location": to}), context)


def test_a_redirect_to_a_server_without_encryption_is_not_followed(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with FileServer(CONTENT) as plain, redirecting(plain.url, pair) as secure:
        environ = {"SSL_CERT_FILE": str(pair[0]), "STORAGE_URI": f"{secure.url}/data.tar.gz"}
        ended = run_afresh(["initialize", "dataset", f"--target={tmp_path}/t"], environ)
    assert ended.code == 1, ended.said
    assert "redirects to http://, which is not encrypted" in ended.last_line
    assert plain.ranges == []


def test_other_redirects_are_followed_but_not_for_ever(tmp_path: Path) -> None:
    with FileServer(CONTENT) as server, HttpServer(lambda _: Answer(307, b"", {"Location": server.url})) as front:
        ended = initialize("dataset", f"{front.url}/data.tar.gz", tmp_path)
        assert ended.code == 0, ended.said
        assert content_of(tmp_path) == {"data.tar.gz": CONTENT}
    with HttpServer(lambda _: Answer(302, b"", {"Location": "/again.gz"})) as endless:
        ended = initialize("dataset", f"{endless.url}/data.tar.gz", tmp_path)
    assert "redirects more than 10 times" in ended.last_line
