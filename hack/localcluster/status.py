"""The output of `status`."""

from __future__ import annotations

from pathlib import Path

from localcluster import nodes, process, state
from localcluster.controlplane import GUARD, ControlPlane
from localcluster.state import Condition, StackState

_MEANING = {
    Condition.ABSENT: "nothing runs",
    Condition.STARTING: "being started, or its start was interrupted",
    Condition.RUNNING: "running",
    Condition.BROKEN: "broken: some programs have ended",
    Condition.STALE: "stale: from before a reboot, no process is running",
}


def as_text(name: str, folder: Path) -> str:
    """Returns what runs in the folder; a stack in a bad state raises no error."""
    record = state.read(folder)
    condition = state.condition(record)
    lines = [f"{name}: {_MEANING[condition]}"]
    if record is not None:
        keys = ("server", "kubernetes", "kubeconfig", "created")
        lines += [f"  {key:<11} {getattr(record, key)}" for key in keys]
    lines.append(f"  {'logs':<11} {folder / 'logs'}")
    if record is not None:
        lines += [_program(folder, record, program, condition) for program in record.programs]
    for node in nodes.status(folder) if condition in (Condition.RUNNING, Condition.BROKEN) else ():
        lines.append("  " + "  ".join(f"{key} {value}" for key, value in node.items()))
    return "\n".join(lines)


def _program(folder: Path, stack: StackState, name: str, condition: Condition) -> str:
    identity = stack.programs[name].identity
    if condition is Condition.STALE or identity is None or not process.is_alive(identity):
        return f"  {name:<24} ended"
    is_ready = name == GUARD or ControlPlane(folder).is_healthy(name)
    return f"  {name:<24} {'ready' if is_ready else 'not ready':<10} pid {identity.pid}"
