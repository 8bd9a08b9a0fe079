"""`tfjob-controller checkpoint save` and `restore` as programs, with real servers and hostile folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.checkpoints import resumed, write
from helpers.poll import eventually
from helpers.s3server import SECRET_KEY, S3Server
from helpers.storagecommand import Ended, Running
from helpers.storages import SCHEMES, Storage, storage

FILES = {"model.bin": os.urandom(17_000_000), "sub/config.json": b"{}", "empty": b"", "odd name ?#%*[x].bin": b"1"}


@pytest.fixture(params=[*SCHEMES, "pvc"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "pvc":
        yield at("pvc://claim/folder", {"TFJOB_CONTROLLER_STORE_PATH": f"{tmp_path}/mounted"})
        return
    with storage(request.param, {}, tmp_path / "store") as place:
        yield place


def at(uri: str, environ: Mapping[str, str]) -> Storage:
    return Storage(uri, environ, dict)


def saving(place: Storage, folder: Path, *flags: str) -> Running:
    fast = ["--settle-seconds=1", "--poll-seconds=1", *flags]
    return Running(["checkpoint", "save", f"--path={folder}", *fast], {"STORAGE_URI": place.uri, **place.environ})


def told(running: Running, key: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in running.out.splitlines()]
    return [line[key] for line in lines if key in line]


def saved(running: Running) -> list[str]:
    return [each["name"] for each in told(running, "checkpoint")]


def restore(place: Storage, folder: Path, *flags: str) -> tuple[Ended, dict[str, Any]]:
    arguments = ["checkpoint", "restore", f"--path={folder}", *flags]
    with Running(arguments, {"STORAGE_URI": place.uri, **place.environ}) as running:
        ended = running.end()
        out = running.out.splitlines()
    return ended, json.loads(out[-1]) if out else {}


def test_what_is_saved_is_restored_and_only_the_newest_are_kept(place: Storage, tmp_path: Path) -> None:
    work = tmp_path / "work"
    ended, result = restore(place, work)
    assert (ended.code, result) == (0, {"restored": None}), ended.said
    with saving(place, work, "--keep=2") as sidecar:
        for number in (1, 2, 3):
            write(work / f"checkpoint-{number}", {**FILES, "number": b"%d" % number, ".done": b""})
            eventually(lambda number=number: f"checkpoint-{number}" in saved(sidecar))  # type: ignore[misc]
        ended = sidecar.signal(signal.SIGTERM)
        assert ended.code == 0, ended.said
        assert SECRET_KEY not in ended.said + sidecar.out
        last = told(sidecar, "checkpoint")[-1]
    ended, result = restore(place, tmp_path / "new")
    assert ended.code == 0, ended.said
    found = result["restored"]
    assert (found["name"], found["step"], found["skipped"]) == ("checkpoint-3", 3, [])
    assert (found["uploadId"], found["uri"]) == (last["uploadId"], last["uri"])
    assert resumed(tmp_path / "new") == {**FILES, "number": b"3", ".done": b""}
    # A sidecar beside the restored checkpoint saves nothing, and only two checkpoints are left.
    with saving(place, tmp_path / "new") as sidecar:
        eventually(lambda: "watching" in sidecar.said)
        ended = sidecar.signal(signal.SIGTERM)
        assert saved(sidecar) == []
        assert ended.event("nothing to save: the storage has it")["name"] == "checkpoint-3"


def test_each_node_has_checkpoints_of_its_own_if_wanted(tmp_path: Path) -> None:
    place = at(f"file://{tmp_path}/store", {})
    for node in (0, 1):
        write(tmp_path / f"work-{node}/c-1", {"rank": b"%d" % node, ".done": b""})
        with saving(place, tmp_path / f"work-{node}", "--per-node", f"--node={node}") as sidecar:
            eventually(lambda sidecar=sidecar: saved(sidecar))  # type: ignore[misc]
            sidecar.signal(signal.SIGTERM)
    ended, result = restore(place, tmp_path / "new", "--per-node", "--node=1")
    assert "/node-1/" in result["restored"]["uri"], ended.said
    assert resumed(tmp_path / "new") == {"rank": b"1", ".done": b""}


def test_another_node_saves_nothing(tmp_path: Path) -> None:
    place = at(f"file://{tmp_path}/store", {"JOB_COMPLETION_INDEX": "1"})
    write(tmp_path / "work/c-1", {"x": b"1", ".done": b""})
    with saving(place, tmp_path / "work") as sidecar:
        # SIGTERM would end a process that has no handler yet with another code.
        eventually(lambda: "node 0 saves" in sidecar.said)
        ended = sidecar.signal(signal.SIGTERM)
    assert ended.code == 0
    assert not (tmp_path / "store").exists()


def test_a_server_that_is_not_there_is_an_error_that_may_pass(tmp_path: Path) -> None:
    with S3Server() as server:
        environ = {**server.environ, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}
    ended, result = restore(at("s3://models/x", environ), tmp_path / "new", "--retries=1")
    assert (ended.code, result) == (203, {})
    assert SECRET_KEY not in ended.said


@pytest.mark.parametrize("action", ["save", "restore"])
def test_a_uri_that_cannot_be_used_is_one_clear_line(action: str, tmp_path: Path) -> None:
    arguments = ["checkpoint", action, f"--path={tmp_path}/work"]
    with Running(arguments, {"STORAGE_URI": f"file://{tmp_path}/work/inside"}) as running:
        ended = running.end()
    assert ended.code == 1
    assert "must not contain each other" in ended.last_line


def test_an_upload_process_ends_with_its_sidecar(tmp_path: Path) -> None:
    place = at(f"file://{tmp_path}/store", {})
    with saving(place, tmp_path / "work", "--max-bandwidth=1Ki") as sidecar:
        write(tmp_path / "work/c-1", {"x": b"1" * 1_000_000, ".done": b""})
        eventually(lambda: uploads_of(sidecar.pid))
        (upload,) = uploads_of(sidecar.pid)
        sidecar.signal(signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{upload}").exists())


def uploads_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_sidecar_without_changes_needs_little(tmp_path: Path) -> None:
    """30 MB, also with a checkpoint of many files. Run afresh, without the modules of the tests."""
    write(tmp_path / "work/c-1", {str(number): b"1" for number in range(500)})
    arguments = [
        "checkpoint",
        "save",
        f"--path={tmp_path}/work",
        "--settle-seconds=1",
        f"--storage-uri=file://{tmp_path}/store",
    ]
    process = subprocess.Popen([sys.executable, "-m", "tfjob_controller", *arguments], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert b'"c-1"' in process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        assert resident < 30_000, f"{resident} kB"
    finally:
        process.terminate()
        process.communicate()
