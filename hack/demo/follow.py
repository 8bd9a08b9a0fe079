"""Follows one job to its end and shows it live."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live

from demo.kubectl import Kubectl, KubectlError
from demo.picture import picture, replica_of

POLL_SECONDS = 0.5
FINISHED_PHASES = ("Done", "Failed")


class DemoError(Exception):
    """The demo cannot go on; the text says why and what to do."""


@dataclass(slots=True)
class Seen:
    """What was seen of a job on its way: its last state, and where each of its replicas ran."""

    job: Mapping[str, Any] = field(default_factory=dict)
    node_of_replica: dict[str, str] = field(default_factory=dict)


def follow(kubectl: Kubectl, name: str, console: Console, timeout_seconds: float) -> Seen:
    """Show the job until it ended. Raises `DemoError` if it has not within the time."""
    seen, began = Seen(), time.monotonic()
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        while time.monotonic() - began < timeout_seconds:
            _look(kubectl, name, seen, live, time.monotonic() - began)
            if seen.job.get("status", {}).get("phase") in FINISHED_PHASES:
                return seen
            time.sleep(POLL_SECONDS)
    raise DemoError(f"{name} has not ended within {timeout_seconds:.0f} s; its events and the controller's log say why")


def _look(kubectl: Kubectl, name: str, seen: Seen, live: Live, elapsed_seconds: float) -> None:
    try:
        seen.job = kubectl.get("tfjob", name)
        pods = kubectl.items("pods", f"tf_job_name={name}")
    except KubectlError as error:
        raise DemoError(str(error)) from error
    for pod in pods:
        if node := pod.get("spec", {}).get("nodeName"):
            seen.node_of_replica[replica_of(pod)] = node
    live.update(picture(seen.job, pods, elapsed_seconds))
