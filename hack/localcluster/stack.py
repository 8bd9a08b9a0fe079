"""A whole stack by its name: the control plane, and real nodes and programs of other projects if requested."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from localcluster import addons, nodes, process, state
from localcluster.addontable import addon
from localcluster.controlplane import ControlPlane, check_platform
from localcluster.errors import LocalClusterError
from localcluster.kubernetesversions import chosen_minor
from localcluster.process import Identity
from localcluster.programs import Options
from localcluster.report import Report, to_stderr
from localcluster.state import Condition

# Stacks of test runs, which end with their owner: `test-<pid>-…`.
TEST_PREFIX = "test-"


def up(
    folder: Path,
    node_count: int = 0,
    owner: Identity | None = None,
    report: Report = to_stderr,
    *,
    unsafe_no_fsync: bool = False,
    addons: Sequence[str] = (),
) -> ControlPlane:
    """Starts a stack, unless it already runs with as many nodes. Raises LocalClusterError.

    `addons` are programs of other projects (localcluster.addons), which are also added to a stack that runs.

    With `unsafe_no_fsync` etcd does not wait for the disk: its data survives the end of its process, but not a crash
    of the machine. After any error, Ctrl-C included, no process of the stack remains.
    """
    check_platform()
    for name in addons:
        addon(name)  # an unknown name is refused before anything starts
    with _alone(folder, report):
        condition = state.condition(state.read(folder))
        if condition is Condition.RUNNING:
            return _with_addons(_running(folder, node_count, report), addons, report)
        if condition is not Condition.ABSENT:
            report(f"cleaning up an earlier stack ({condition.value})")
        _down(folder)
        try:
            return _with_addons(_up(folder, node_count, owner, report, unsafe_no_fsync), addons, report)
        except BaseException:
            _down(folder)
            raise


def down(folder: Path, report: Report = to_stderr) -> bool:
    """Stops a stack in any state; returns whether there was anything to stop. Logs remain."""
    check_platform()
    if not folder.is_dir() and not process.marked(folder):
        return False
    with _alone(folder, report):
        return _down(folder)


def _up(folder: Path, node_count: int, owner: Identity | None, report: Report, unsafe_no_fsync: bool) -> ControlPlane:
    if node_count:
        return nodes.start(folder, node_count, owner, report, unsafe_no_fsync)
    plane = ControlPlane(folder, Options(unsafe_no_fsync=unsafe_no_fsync), owner=owner, report=report)
    plane.start()
    return plane


def _with_addons(plane: ControlPlane, names: Sequence[str], report: Report) -> ControlPlane:
    for name in names:
        if not addons.is_ready(plane, name):
            addons.start(plane, name, report=report)
    return plane


def _down(folder: Path) -> bool:
    existed = state.read(folder) is not None or bool(process.marked(folder))
    if nodes.exists(folder):
        existed = True
        nodes.stop(folder)
    if existed:
        ControlPlane(folder).stop()
    return existed


def _alone(folder: Path, report: Report) -> AbstractContextManager[None]:
    return state.locked(folder, "command.lock", lambda: report("waiting for another command on this stack"))


def node_kill(folder: Path, number: int, report: Report = to_stderr) -> None:
    with _alone(folder, report):
        _check_nodes(folder)
        nodes.kill(folder, number)


def node_start(folder: Path, number: int, report: Report = to_stderr) -> None:
    with _alone(folder, report):
        _check_nodes(folder)
        nodes.start_node(folder, number)


def existing_kubeconfig() -> str | None:
    """Returns the value of KUBECONFIG; None if it is not set, or names only stacks of this package that were stopped.

    Raises LocalClusterError if the file is missing.
    """
    named = os.environ.get("KUBECONFIG", "")
    paths = [Path(part) for part in named.split(os.pathsep) if part]
    if not paths or any(path.exists() for path in paths):
        return named or None
    if all(path.is_relative_to(state.state_root()) for path in paths):
        return None
    raise LocalClusterError(
        f"KUBECONFIG={named}: no such file; name an existing cluster's, or unset it for a local one"
    )


def is_own(kubeconfig: str) -> bool:
    """Reports whether this package wrote the kubeconfig."""
    return Path(kubeconfig).is_relative_to(state.state_root())


@contextmanager
def throwaway(name: str, options: Options, report: Report) -> Iterator[ControlPlane]:
    """Runs a control plane of this process, and deletes its folder at the end. Test runs clean it up after a crash."""
    folder = state.stack_dir(f"{TEST_PREFIX}{os.getpid()}-{name}")
    try:
        with ControlPlane(folder, options, owner=process.myself(), report=report) as plane:
            yield plane
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_ended_tests() -> None:
    """Stops and removes the stacks of test runs whose process has ended."""
    root = state.state_root()
    for folder in root.glob(f"{TEST_PREFIX}*") if root.is_dir() else ():
        if not _owner_lives(folder):
            down(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _owner_lives(folder: Path) -> bool:
    """Reports whether the owner of a test stack may still run; a stack without an owner counts as owned."""
    found = state.read(folder)
    if found is not None and found.owner is not None:
        return found.boot_id == process.boot_id() and process.is_alive(found.owner)
    pid = folder.name.removeprefix(TEST_PREFIX).partition("-")[0]
    return not pid.isdigit() or process.identify(int(pid)) is not None


def _running(folder: Path, node_count: int, report: Report) -> ControlPlane:
    plane = ControlPlane.attach(folder, report)
    present = len(nodes.status(folder))
    if present != node_count and node_count:
        raise LocalClusterError(
            f"the stack is running already with {present} nodes, not {node_count}: run make cluster-down first"
        )
    if plane.minor != chosen_minor():
        raise LocalClusterError(
            f"the stack is running already with Kubernetes {plane.minor}, not {chosen_minor()}: "
            "run make cluster-down first, or start another one beside it with NAME=…"
        )
    report("the stack is running already")
    return plane


def _check_nodes(folder: Path) -> None:
    if not nodes.exists(folder):
        raise LocalClusterError("this stack has no nodes: run make cluster-down, then make cluster-up NODES=2")
