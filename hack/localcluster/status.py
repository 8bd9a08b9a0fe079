"""The output of `status`, as data and as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def collect(name: str, folder: Path) -> dict[str, Any]:
    """Returns the stack as JSON data; a stack in a bad state raises no error."""
    found = state.read(folder)
    condition = state.condition(found)
    status: dict[str, Any] = {"name": name, "condition": condition.value, "meaning": _MEANING[condition]}
    status |= {"folder": str(folder), "logs": str(folder / "logs")}
    if found is None:
        return status
    status |= {"server": found.server, "kubernetes": found.kubernetes}
    status |= {"kubeconfig": found.kubeconfig, "created": found.created}
    status["programs"] = [_program(folder, found, program, condition) for program in found.programs]
    status["nodes"] = nodes.status(folder) if condition in (Condition.RUNNING, Condition.BROKEN) else []
    return status


def as_text(status: dict[str, Any]) -> str:
    lines = [f"{status['name']}: {status['meaning']}"]
    lines += [
        f"  {key:<11} {status[key]}"
        for key in ("server", "kubernetes", "kubeconfig", "created", "logs")
        if key in status
    ]
    for program in status.get("programs", ()):
        pid = program["pid"] or "-"
        lines.append(f"  {program['name']:<24} {program['condition']:<10} pid {pid}")
    for node in status.get("nodes", ()):
        lines.append("  " + "  ".join(f"{key} {value}" for key, value in node.items()))
    return "\n".join(lines)


def _program(folder: Path, found: StackState, name: str, condition: Condition) -> dict[str, Any]:
    record = found.programs[name]
    runs = condition is not Condition.STALE and record.identity is not None and process.is_alive(record.identity)
    if not runs:
        word = "ended"
    elif name == GUARD or ControlPlane(folder).is_healthy(name):
        word = "ready"
    else:
        word = "not ready"
    return {
        "name": name,
        "condition": word,
        "pid": record.identity.pid if runs and record.identity else None,
        "log": record.log,
    }
