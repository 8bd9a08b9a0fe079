"""The contract of the local cluster, with real programs."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import interrupt
from helpers.cluster import Cluster
from helpers.poll import eventually
from localcluster import process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.programs import Options
from localcluster.report import silent

pytestmark = pytest.mark.cluster

HACK = Path(stack.__file__).parents[1]


@pytest.fixture(autouse=True)
def _nothing_else_is_named() -> None:
    if stack.existing_kubeconfig() is not None:
        pytest.skip("tests the local cluster itself: unset KUBECONFIG")


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return subprocess.run(
        [sys.executable, "-m", "localcluster", *arguments],
        env={**env, "PYTHONPATH": str(HACK), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder of this test's own, with nothing left running in it afterwards."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path / "state"
    for record in (tmp_path / "state").rglob("state.json"):
        stack.down(record.parent)


@pytest.mark.long
def test_two_stacks_run_side_by_side_and_each_stops_alone(state_home: Path) -> None:
    first, second = command("up", "--name", "a"), command("up", "--name", "b")
    paths = [Path(done.stdout.splitlines()[-1]) for done in (first, second)]
    for name, path in zip("ab", paths, strict=True):
        Api.from_kubeconfig(path).create("/api/v1/namespaces", {"metadata": {"name": f"only-{name}"}})
    command("down", "--name", "a")
    assert not paths[0].exists()
    assert not process.marked(state.stack_dir("a"))
    assert Api.from_kubeconfig(paths[1]).find("/api/v1/namespaces/only-b")
    assert Api.from_kubeconfig(paths[1]).find("/api/v1/namespaces/only-a") is None


def test_secrets_are_the_owners_alone_and_in_no_command_line(control_plane: Cluster) -> None:
    folder = control_plane.folder
    for path in (folder, *folder.rglob("*")):
        public = path.name == "apiserver.crt" or stat.S_ISSOCK(path.stat().st_mode)
        assert public or stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    token = ControlPlane.attach(folder).token
    lines = [Path(f"/proc/{identity.pid}/cmdline").read_text() for identity in process.marked(folder)]
    assert len(lines) >= 4
    assert not any(token in line for line in lines)
    assert token not in (folder / "state.json").read_text()


def test_only_loopback_is_listened_on(control_plane: Cluster) -> None:
    pids = {identity.pid for identity in process.marked(control_plane.folder)}
    lines = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout.splitlines()
    mine = [line.split()[3] for line in lines if any(f"pid={pid}," in line for pid in pids)]
    assert mine
    assert all(address.startswith("127.0.0.1:") for address in mine), mine


def test_a_crash_leaves_nothing_after_down(state_home: Path) -> None:
    folder = Path(command("up").stdout.splitlines()[-1]).parent
    processes = process.marked(folder)
    process.end([processes[0]])
    (folder / "state.json").unlink()  # even the record is lost
    assert command("down").returncode == 0
    assert not any(process.is_alive(identity) for identity in processes)
    assert sorted(entry.name for entry in folder.iterdir()) == ["command.lock", "lock", "logs"]


def interrupted_start(number: signal.Signals) -> tuple[int, str]:
    """Exit code and words of a start that gets the signal once its first programs run."""
    starting = subprocess.Popen(
        [sys.executable, "-m", "localcluster", "up"],
        env={**os.environ, "PYTHONPATH": str(HACK)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interrupt.allow,
    )
    eventually(lambda: len(process.marked(state.stack_dir())) >= 2, timeout=30)
    starting.send_signal(number)
    _, words = starting.communicate(timeout=300)
    return starting.returncode, words


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_nothing(state_home: Path, number: signal.Signals) -> None:
    code, words = interrupted_start(number)
    while code == 0:  # the signal came when all was done: there was nothing to interrupt
        assert command("down").returncode == 0
        code, words = interrupted_start(number)
    assert code == 130
    assert "interrupted" in words
    assert not process.marked(state.stack_dir())


@pytest.mark.long
def test_a_start_that_was_killed_is_cleaned_up_by_the_next(state_home: Path) -> None:
    starting = subprocess.Popen(
        [sys.executable, "-m", "localcluster", "up"],
        env={**os.environ, "PYTHONPATH": str(HACK)},
        stderr=subprocess.DEVNULL,
    )
    folder = state.stack_dir()
    left = eventually(lambda: process.marked(folder), timeout=30)
    starting.kill()
    starting.wait()
    done = command("up")
    assert done.returncode == 0, done.stderr
    assert not any(process.is_alive(identity) for identity in left)
    assert len(process.marked(folder)) == 4


@pytest.mark.long
def test_a_stack_from_before_a_reboot_is_stale_and_up_starts_afresh(state_home: Path) -> None:
    folder = state.stack_dir()
    state.make_private(folder)
    old = state.StackState(boot_id="another", created="", kubeconfig="", server="https://127.0.0.1:1", ready=True)
    # The pid is in use again, by this very test: nobody may take it for etcd, let alone end it.
    old.programs["etcd"] = state.ProgramRecord(argv=["etcd"], log="", identity=process.myself())
    state.write(folder, old)
    assert "before a reboot" in command("status").stdout
    done = command("up")
    assert done.returncode == 0, done.stderr
    assert "stale" in done.stderr
    assert command("status").stdout.startswith("default: running\n")


def test_a_stack_ends_with_its_owner_even_by_sigkill(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from localcluster import process, stack;"
        "stack.up(Path(sys.argv[1]), owner=process.myself()); print('up', flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "s")],
        env={**os.environ, "PYTHONPATH": str(HACK)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    processes = process.marked(tmp_path / "s")
    assert len(processes) == 5
    owner.kill()
    owner.wait()
    eventually(lambda: not process.marked(tmp_path / "s"), timeout=15)
    eventually(lambda: not (tmp_path / "s" / "kubeconfig").exists())


def test_a_killed_server_comes_back_on_its_port_with_its_objects(spare_control_plane: Cluster) -> None:
    plane, api = spare_control_plane.own, spare_control_plane.api
    server = plane.server
    api.create_if_missing("/api/v1/namespaces", {"metadata": {"name": "kept"}})
    for name in ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager"):
        plane.kill(name)
        assert plane.condition is state.Condition.BROKEN
        plane.start_program(name)
    assert plane.condition is state.Condition.RUNNING
    assert plane.server == server
    assert eventually(lambda: api.find("/api/v1/namespaces/kept"), timeout=20)


def test_a_program_that_cannot_start_is_named_with_its_last_output(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path / "s", Options(apiserver_flags=("--no-such-flag",)), report=silent)
    with pytest.raises(
        LocalClusterError, match=r"^kube-apiserver ended while starting: .*no-such-flag.*apiserver\.log"
    ):
        plane.start()
    assert not process.marked(plane.folder)
    assert plane.condition is state.Condition.ABSENT
