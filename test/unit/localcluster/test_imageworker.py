"""The process that makes images beside the builds: its words, its failure, and its end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers.poll import eventually
from localcluster import process
from localcluster.errors import LocalClusterError
from localcluster.imageworker import ImageWorker
from localcluster.report import silent


@pytest.fixture
def worker_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the shell script that runs in the place of Python."""
    script = tmp_path / "python"
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return script


def test_its_lines_are_reported_and_wait_returns_when_it_has_ended(worker_runs: Path) -> None:
    worker_runs.write_text("#!/bin/sh\necho building $5 >&2\n")
    lines: list[str] = []
    with ImageWorker(["localhost/base"], lines.append) as worker:
        worker.wait()
    assert lines == ["building localhost/base"]


def test_its_error_is_that_of_wait(worker_runs: Path) -> None:
    worker_runs.write_text("#!/bin/sh\necho 'error: no mirror' >&2\nexit 1\n")
    with (
        pytest.raises(LocalClusterError, match=r"^no mirror$"),
        ImageWorker(["localhost/base"], silent) as worker,
    ):
        worker.wait()


def test_an_interrupted_block_ends_all_that_it_has_started(worker_runs: Path, tmp_path: Path) -> None:
    worker_runs.write_text(
        f"#!/bin/sh\nsleep 300 &\necho $! $$ >{tmp_path}/part; mv {tmp_path}/part {tmp_path}/pids\nwait\n"
    )
    with pytest.raises(KeyboardInterrupt):
        interrupted_worker(tmp_path / "pids")
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    eventually(lambda: [process.identify(pid) for pid in pids] == [None, None])


def interrupted_worker(pids: Path) -> None:
    with ImageWorker(["localhost/base"], silent):
        eventually(pids.exists)
        raise KeyboardInterrupt
