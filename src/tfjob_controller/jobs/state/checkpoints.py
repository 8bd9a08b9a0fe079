"""The checkpoints of a job, from its pods: where they are saved, and whether the last one still exists.

The containers of a pod end before its native sidecars, which get SIGTERM then. Until they have ended, at most the pod's
grace period later, the pod's phase stays Running. The container that saves checkpoints uploads the last one in this
time. So the program of a replica may have succeeded while its pod runs, and its job must not end yet: its clean-up
would delete the pod, and users would look for a checkpoint that is not there.

Source: KEP-753 (sidecar containers), kubelet pkg/kubelet/kubelet_pods.go (getPhase). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from tfjob_controller.api.common.checkpointstatus import MAX_SKIPPED, RestoredCheckpoint, SkippedCheckpoint
from tfjob_controller.api.common.core import ContainerStatus, Pod
from tfjob_controller.jobs.plan.model import Plan, Replica
from tfjob_controller.jobs.podtemplate.checkpoint import RESTORER, SAVER
from tfjob_controller.jobs.state.pods import is_finished, last_exit, training_container
from tfjob_controller.jobs.state.replica_state import SUCCEEDED, ReplicaState
from tfjob_controller.jobs.state.replica_times import REPORT_SECONDS, grace_seconds
from tfjob_controller.util.text import CONTROL_CHARACTERS, PRINTABLE_PATTERN
from tfjob_controller.util.timestamps import seconds_until

# The kubelet cuts a termination message at 4 KiB.
_LONGEST_MESSAGE = 4096
_CONTROLS = re.compile(f"[\x00-\x1f{CONTROL_CHARACTERS}]+")
_Name = Annotated[str, msgspec.Meta(max_length=253, pattern=PRINTABLE_PATTERN)]


class _Skipped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: _Name
    reason: Annotated[str, msgspec.Meta(max_length=1000)]


_AllSkipped = Annotated[tuple[_Skipped, ...], msgspec.Meta(max_length=MAX_SKIPPED)]


class _Restored(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=253, pattern=PRINTABLE_PATTERN)]
    step: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None
    uri: Annotated[str, msgspec.Meta(max_length=1000, pattern=PRINTABLE_PATTERN)]
    upload_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    skipped: _AllSkipped = ()


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `storage/checkpoints/commands.py` writes. Tenants can write it as well, so it is bounded and checked."""

    restored: _Restored | None
    skipped: _AllSkipped = ()


_decode = msgspec.json.Decoder(_Message).decode


def saving_replica(plan: Plan) -> Replica | None:
    """Returns the replica whose checkpoints the status shows: the first one that saves any; None if none does."""
    return next((replica for replica in plan.replicas.all if saves_checkpoints(replica)), None)


def saves_checkpoints(replica: Replica) -> bool:
    containers = (replica.template.get("spec") or {}).get("initContainers") or ()
    return any(
        container.get("name") == SAVER and container.get("restartPolicy") == "Always" for container in containers
    )


def saver_container(pod: Pod) -> ContainerStatus | None:
    """Returns the status of the container that saves the pod's checkpoints."""
    return next((status for status in pod.status.init_container_statuses if status.name == SAVER), None)


def restored_in(pod: Pod) -> RestoredCheckpoint | None:
    """Returns what the pod's init container has restored, without repeated steps.

    Its name is empty if there was no checkpoint. None if it has not ended well, or its message is not one of the
    command `checkpoint restore`.
    """
    found = (status.state.terminated for status in pod.status.init_container_statuses if status.name == RESTORER)
    ended = next(found, None)
    if ended is None or ended.exit_code != 0 or not ended.finished_at or len(ended.message) > _LONGEST_MESSAGE:
        return None
    try:
        told = _decode(ended.message)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    restored = told.restored
    skipped = tuple(SkippedCheckpoint(each.name, printable(each.reason)) for each in told.skipped)
    if restored is None:
        return RestoredCheckpoint(time=ended.finished_at, skipped=skipped)
    skipped = tuple(SkippedCheckpoint(each.name, printable(each.reason)) for each in restored.skipped)
    return RestoredCheckpoint(restored.name, restored.step, ended.finished_at, restored.uri, skipped=skipped)


def printable(text: str) -> str:
    """Returns the text on one line, without control characters."""
    return _CONTROLS.sub(" ", text)


def saving_states(states: Sequence[ReplicaState], now: datetime) -> Sequence[ReplicaState]:
    """Returns the replicas that have succeeded and may still be saving their last checkpoint."""
    return [state for state in states if seconds_until_saved(state, now) > 0]


def seconds_until_saved(state: ReplicaState, now: datetime) -> float:
    """Returns how long the last checkpoint of a replica that has succeeded may still take; 0 if none is being saved."""
    pod = state.pod
    if state.state != SUCCEEDED or pod is None or is_finished(pod) or not saves_checkpoints(state.replica):
        return 0.0
    saver, program = saver_container(pod), training_container(pod, state.replica.role.container)
    exited = last_exit(program) if program is not None else None
    if saver is None or saver.state.running is None or exited is None or not exited.finished_at:
        return 0.0
    return max(0.0, seconds_until(exited.finished_at, grace_seconds(state.replica) + REPORT_SECONDS, now))
