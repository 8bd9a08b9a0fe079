"""The rules of localcluster/process.py, on real processes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.poll import eventually
from localcluster import process
from localcluster.process import Identity

IGNORES_SIGTERM = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"


# Ends its first thread alone (the system call `exit`), as a dying program with many threads does for a moment.
FIRST_THREAD_ENDS = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """A stack's folder; whatever carries its mark is ended after the test."""
    yield tmp_path
    process.end(process.marked(tmp_path))


def sleeper(mark: Path) -> Identity:
    return process.spawn(["sleep", "600"], log=mark / "sleep.log", mark=mark)


def test_a_process_is_known_by_pid_and_start_time(mark: Path) -> None:
    identity = sleeper(mark)
    assert process.identify(identity.pid) == identity
    assert process.is_alive(identity)
    assert not process.is_alive(Identity(identity.pid, identity.start_time + 1))


def test_a_reused_pid_is_never_signalled(mark: Path) -> None:
    identity = sleeper(mark)
    stranger = Identity(identity.pid, identity.start_time - 1)
    assert not process.send(stranger, signal.SIGKILL)
    assert process.end([stranger]) == []
    assert process.is_alive(identity)


def test_names_with_spaces_and_parentheses_are_understood(mark: Path, tmp_path: Path) -> None:
    program = tmp_path / "a) b (c"
    program.symlink_to("/bin/sleep")
    identity = process.spawn([str(program), "600"], log=mark / "log", mark=mark)
    eventually(lambda: "a) b (c" in Path(f"/proc/{identity.pid}/stat").read_text())
    # Fields counted from the wrong parenthesis would give a small number here.
    assert identity.start_time >= process.myself().start_time


def test_a_zombie_has_ended(mark: Path) -> None:
    child = subprocess.Popen(["true"])
    eventually(lambda: process.identify(child.pid) is None)
    assert child.wait() == 0


def test_a_process_lives_as_long_as_its_last_thread(mark: Path) -> None:
    identity = process.spawn([sys.executable, "-c", FIRST_THREAD_ENDS], log=mark / "log", mark=mark)
    eventually(lambda: ") Z " in Path(f"/proc/{identity.pid}/stat").read_text())
    assert process.is_alive(identity)
    assert process.end([identity]) == []
    assert not process.is_alive(identity)


def test_an_end_leaves_no_zombie(mark: Path) -> None:
    identity = sleeper(mark)
    assert process.end([identity]) == []
    assert not Path(f"/proc/{identity.pid}").exists()


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period(mark: Path) -> None:
    log = mark / "log"
    identity = process.spawn([sys.executable, "-c", IGNORES_SIGTERM], log=log, mark=mark)
    eventually(lambda: "ready" in log.read_text())
    assert process.end([identity], grace_seconds=0.1) == []
    assert not process.is_alive(identity)


def test_waiting_returns_the_processes_that_still_run(mark: Path) -> None:
    identity = sleeper(mark)
    assert process.wait_gone([identity], timeout_seconds=0.05) == [identity]


def test_the_mark_finds_children_too_and_nobody_else(mark: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    script = ["sh", "-c", "sleep 600 & exec sleep 600"]
    parent = process.spawn(script, log=mark / "log", mark=mark)
    stranger = sleeper(other)
    eventually(lambda: len(process.marked(mark)) == 2)
    assert parent in process.marked(mark)
    assert process.marked(other) == [stranger]
    process.end([stranger])


def test_a_program_stands_in_a_session_of_its_own_with_a_private_log(mark: Path) -> None:
    identity = process.spawn(["sh", "-c", "echo words; exec sleep 600"], log=mark / "log", mark=mark)
    assert os.getsid(identity.pid) == identity.pid
    eventually(lambda: (mark / "log").read_text() == "words\n")
    assert stat.S_IMODE((mark / "log").stat().st_mode) == 0o600


def test_a_program_that_ended_at_once_is_not_alive(mark: Path) -> None:
    identity = process.spawn(["true"], log=mark / "log", mark=mark)
    eventually(lambda: not process.is_alive(identity))


@pytest.mark.skipif(not process.may_name_hosts(), reason="this user may not make namespaces on this machine")
def test_a_program_may_have_another_machines_name(mark: Path) -> None:
    log = mark / "name.log"
    identity = process.spawn(process.on_host("replica-a", ["sh", "-c", "uname -n; sleep 600"]), log=log, mark=mark)
    eventually(lambda: log.read_text() == "replica-a\n")
    assert process.is_alive(identity)
    assert os.uname().nodename != "replica-a"
