"""The rules of localcluster/state.py and stack.py."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from localcluster import process, stack, state
from localcluster.errors import LocalClusterError
from localcluster.process import Identity
from localcluster.report import silent
from localcluster.state import Condition, ProgramRecord, StackState


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path / "tfjob-controller"


def record(identity: Identity | None, **fields: object) -> StackState:
    values = {"boot_id": process.boot_id(), "ready": True, **fields}
    program = ProgramRecord(argv=["sleep"], log="", identity=identity)
    return StackState(created="", kubeconfig="", server="", programs={"etcd": program}, **values)  # type: ignore[arg-type]  # given by name


@pytest.mark.parametrize(
    ("found", "condition"),
    [
        pytest.param(None, Condition.ABSENT, id="no record"),
        pytest.param(record(process.myself()), Condition.RUNNING, id="its process runs"),
        pytest.param(record(process.myself(), ready=False), Condition.STARTING, id="not ready yet"),
        pytest.param(record(Identity(os.getpid(), 1)), Condition.BROKEN, id="its pid is somebody else's now"),
        pytest.param(record(None), Condition.BROKEN, id="a program was never started"),
        pytest.param(record(process.myself(), boot_id="x"), Condition.STALE, id="from before a reboot"),
    ],
)
def test_a_record_is_judged_by_boot_pid_and_start_time(found: StackState | None, condition: Condition) -> None:
    assert state.condition(found) is condition


def test_a_record_reads_back_as_it_was_written(tmp_path: Path) -> None:
    written = record(process.myself(), owner=process.myself())
    state.write(tmp_path, written)
    assert state.read(tmp_path) == written


@pytest.mark.parametrize("content", [b"", b'{"boot_id": 1}'], ids=["cut", "wrong type"])
def test_a_record_that_cannot_be_read_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    assert state.read(tmp_path) is None


def test_private_files_are_the_owners_alone_whatever_was_there(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("old")
    path.chmod(0o644)
    state.write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_cleared_stack_keeps_its_logs(tmp_path: Path) -> None:
    for name in ("logs/etcd.log", "etcd/member/wal", "pki/apiserver.key", "kubeconfig", "state.json", "lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("/etc")
    state.clear(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["etcd.log", "lock", "logs"]


@pytest.mark.parametrize("name", ["", "A", "a-", "a/b", "x" * 41])
def test_names_that_are_no_file_names_are_refused(name: str) -> None:
    with pytest.raises(LocalClusterError) as refused:
        state.stack_dir(name)
    assert refused.value.exit_code == 2


def test_a_process_that_waits_for_a_lock_is_informed_and_then_gets_it(tmp_path: Path) -> None:
    waits = threading.Event()
    got = threading.Event()

    def second() -> None:
        with state.locked(tmp_path, on_wait=waits.set):
            got.set()

    thread = threading.Thread(target=second)
    with state.locked(tmp_path):
        thread.start()
        assert waits.wait(60)
        assert not got.is_set()
    thread.join(60)
    assert got.is_set()


@pytest.mark.parametrize(
    ("runs", "chosen", "refused"),
    [
        pytest.param("v1.34.4", "1.34", "", id="the chosen one"),
        pytest.param("v1.34.1", "1.34", "", id="another patch version"),
        pytest.param("v1.34.4", "", "with Kubernetes 1.34, not 1.36: run make cluster-down first", id="another one"),
        pytest.param("", "", "", id="a record without a version is of the default one"),
        pytest.param("", "1.33", "with Kubernetes 1.36, not 1.33", id="the default one"),
    ],
)
def test_a_running_stack_is_taken_only_if_it_has_the_chosen_version(
    root: Path, monkeypatch: pytest.MonkeyPatch, runs: str, chosen: str, refused: str
) -> None:
    monkeypatch.setenv("KUBERNETES", chosen)
    state.make_private(root / "a")
    state.write(root / "a", record(process.myself(), kubernetes=runs))
    if not refused:
        assert stack.up(root / "a", report=silent).state().kubernetes == runs
        return
    with pytest.raises(LocalClusterError, match=refused):
        stack.up(root / "a", report=silent)


def test_down_where_nothing_ever_was_makes_nothing(root: Path) -> None:
    assert stack.down(root / "none") is False
    assert not root.exists()


@pytest.mark.parametrize(
    ("name", "owner", "stays"),
    [
        pytest.param(f"test-{os.getpid()}", process.myself(), True, id="its run goes on"),
        pytest.param(f"test-{os.getpid()}-gw0-1", None, True, id="only logs, its run goes on"),
        pytest.param("test-1", Identity(os.getpid(), 1), False, id="its owner's pid is somebody else's now"),
        pytest.param(f"test-{2**22 + 1}", None, False, id="only logs, its run has ended"),
        pytest.param("test-mine", None, True, id="a stack of the user's, by chance so named"),
        pytest.param("default", None, True, id="no test's"),
    ],
)
def test_only_stacks_of_ended_test_runs_are_removed(root: Path, name: str, owner: Identity | None, stays: bool) -> None:
    state.make_private(root / name / "logs")
    if owner is not None:
        state.write(root / name, record(None, owner=owner))
    stack.remove_ended_tests()
    assert (root / name).exists() is stays


def test_kubeconfig_names_an_existing_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stack.existing_kubeconfig() is None
    (tmp_path / "config").touch()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert stack.existing_kubeconfig() == str(tmp_path / "config")


def test_a_kubeconfig_that_is_missing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(LocalClusterError, match="no such file"):
        stack.existing_kubeconfig()


def test_an_export_that_outlived_its_own_stack_counts_as_unset(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(root / "default" / "kubeconfig"))
    assert stack.existing_kubeconfig() is None
