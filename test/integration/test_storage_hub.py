"""Initializers and the exporter with a local server of the hub's API shape: what only the hub has."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from helpers.httpserver import Answer, Request
from helpers.hubserver import TOKEN, HubServer
from helpers.storagecommand import MARKER, Running, await_part, content_of, export, initialize

FILES = {
    "config.json": b"{}",
    "sub/tokenizer.json": b'{"a": 1}',
    "model-00001.safetensors": os.urandom(20_000_000),
    ".gitattributes": b"*.safetensors filter=lfs\n",
}
URI = "hf://meta-llama/Llama-3-8b"


@pytest.mark.parametrize(
    ("what", "kind", "uri"),
    [
        pytest.param("model", "models", "hf://org/name", id="model"),
        pytest.param("dataset", "datasets", "hf://org/name", id="dataset"),
        pytest.param("model", "datasets", "hf://datasets/org/name", id="a dataset by name"),
        pytest.param("model", "models", "hf://org/name@v1.0", id="revision"),
    ],
)
def test_all_files_of_a_repository_come(what: str, kind: str, uri: str, tmp_path: Path) -> None:
    with HubServer(dict(FILES), repository="org/name", kind=kind) as hub:
        ended = initialize(what, uri, tmp_path, hub.environ)
    assert ended.code == 0, ended.said
    assert content_of(tmp_path) == FILES


@pytest.mark.parametrize("variable", ["HF_TOKEN", "ACCESS_TOKEN"])
def test_the_token_goes_to_the_hub_and_nowhere_else(variable: str, tmp_path: Path) -> None:
    with HubServer(dict(FILES), needs_token=True) as hub:
        ended = initialize("model", URI, tmp_path / "with", {**hub.environ, variable: TOKEN})
        assert ended.code == 0, ended.said
        assert TOKEN not in ended.said
        without = initialize("model", URI, tmp_path / "without", hub.environ)
    assert without.code == 1
    assert "the repository does not exist, or is private" in without.last_line


@pytest.mark.parametrize(
    ("uri", "is_gated", "words"),
    [
        pytest.param("hf://no/such", False, "the repository does not exist, or is private", id="no repository"),
        pytest.param(f"{URI}@v9", False, "the revision does not exist", id="no revision"),
        pytest.param(URI, True, "accept the terms on the hub", id="gated"),
    ],
)
def test_what_cannot_be_had_is_a_permanent_error(uri: str, is_gated: bool, words: str, tmp_path: Path) -> None:
    with HubServer(dict(FILES), is_gated=is_gated) as hub:
        ended = initialize("model", uri, tmp_path, hub.environ)
    assert ended.code == 1
    assert words in ended.last_line
    assert uri in ended.last_line


@pytest.mark.parametrize("name", ["config.json", "model-00001.safetensors"], ids=["Git's hash", "LFS's SHA-256"])
def test_content_of_another_hash_is_not_taken(name: str, tmp_path: Path) -> None:
    wrong = bytes(len(FILES[name]))
    with HubServer(dict(FILES), wrong={name: wrong}) as hub:
        ended = initialize("model", URI, tmp_path, hub.environ)
    assert ended.code == 1
    assert f"{name}: the hash of the content differs" in ended.last_line
    assert name not in content_of(tmp_path)
    assert not (tmp_path / MARKER).exists()


def test_a_killed_run_keeps_whole_files_and_goes_on_with_the_others(tmp_path: Path) -> None:
    hold = threading.Event()
    large = FILES["model-00001.safetensors"]

    def stall(request: Request) -> Answer | None:
        """Two of three blocks of the large file come."""
        if request.headers.get("range", "").startswith("bytes=16777216-"):
            hold.wait(60.0)
        return None

    with HubServer(dict(FILES), fault_of=stall) as hub:
        arguments = ["initialize", "model", f"--target={tmp_path}"]
        with Running(arguments, {**hub.environ, "STORAGE_URI": URI}) as running:
            await_part(tmp_path, 16_777_216)
            assert running.signal(signal.SIGKILL).code == -9
        hold.set()
        asked = len(hub.requests)
        again = initialize("model", URI, tmp_path, hub.environ)
        later = [request for request in hub.requests[asked:] if "/resolve/" in request.path]
    assert again.code == 0, again.said
    assert content_of(tmp_path)["model-00001.safetensors"] == large
    assert content_of(tmp_path) == FILES
    ranges = [request.headers["range"] for request in later if "safetensors" in request.path]
    assert [asked.partition("-")[0] for asked in ranges] == ["bytes=16777216"]


def test_an_export_is_one_commit_in_a_repository_that_is_made(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / MARKER).write_text("{}")
    with HubServer({}, needs_token=True) as hub:
        ended = export(tmp_path, URI, {**hub.environ, "HF_TOKEN": TOKEN})
    assert ended.code == 0, ended.said
    assert hub.files == FILES
    assert hub.created[0]["visibility"] == "private"
    assert TOKEN not in ended.said
