"""The checkpoints of a job, from its pods and logs: what a status shows of them, and the events that follow from it.

A line of a log may be read twice, and logs of two pods in any order, so each line is compared with the status: only
what is later than the recorded checkpoint or failure counts. The status of a controller that is restarted is therefore
the same, and no checkpoint is counted twice.

The containers of a pod end before its native sidecars, which get SIGTERM then. Until they have ended, at most the pod's
grace period later, the pod's phase stays Running. The container that saves checkpoints uploads the last one in this
time. So the program of a replica may have succeeded while its pod runs, and its job must not end yet: its clean-up
would delete the pod, and users would look for a checkpoint that is not there.

Source: KEP-753 (sidecar containers), kubelet pkg/kubelet/kubelet_pods.go (getPhase). For all kinds of jobs. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec.structs import replace

from tfjob_controller.api.common.checkpointstatus import (
    MAX_SKIPPED,
    CheckpointFailure,
    CheckpointStatus,
    RestoredCheckpoint,
    SkippedCheckpoint,
)
from tfjob_controller.api.common.core import ContainerStatus, Pod
from tfjob_controller.jobs import conditions, reasons
from tfjob_controller.jobs.conditions import NORMAL, WARNING, StatusEvent
from tfjob_controller.jobs.podtemplate.checkpoint import RESTORER, SAVER
from tfjob_controller.jobs.state.observed import CheckpointLine, ReportedStep, SavedCheckpoint, UnsavedCheckpoint
from tfjob_controller.jobs.state.pods import is_finished, last_exit, training_container
from tfjob_controller.jobs.state.replica_state import REPORT_SECONDS, SUCCEEDED, ReplicaState, grace_seconds
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.util.text import CONTROL_CHARACTERS, PRINTABLE_PATTERN
from tfjob_controller.util.timestamps import format_time, parse_time_or_none, seconds_until

# A node's clock may be ahead. A later time is not believed, since every checkpoint after it would seem to be older.
_MOST_AHEAD = timedelta(minutes=5)
_UNITS = ("KiB", "MiB", "GiB", "TiB")
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


def next_checkpoint(
    old: CheckpointStatus | None, lines: Sequence[CheckpointLine], now: datetime
) -> CheckpointStatus | None:
    """Returns what the status shows about checkpoints after these lines; the same object if nothing is new."""
    if not lines:
        return old
    latest = format_time(now + _MOST_AHEAD)
    status = old or CheckpointStatus()
    for line in sorted((entry for entry in lines if entry.time <= latest), key=_chronologically):
        status = _with_saved(status, line) if isinstance(line, SavedCheckpoint) else _with_failure(status, line)
    return old if status == (old or CheckpointStatus()) else status


def with_restored(
    old: CheckpointStatus | None, restored: RestoredCheckpoint | None, steps: Sequence[ReportedStep]
) -> CheckpointStatus | None:
    """Returns the status after pods were started with this checkpoint; the same object if it is not new.

    `steps` were reported before or after; those between the start before and this one tell how many are done again.
    """
    before = old.restored if old is not None else None
    since = (before.time if before is not None else None) or ""
    if restored is None or restored.time is None or restored.time <= since:
        return old
    done = [step.step for step in steps if since <= step.time < restored.time]
    if not (restored.name or restored.skipped or done):
        return old  # a first start
    is_known = restored.step is not None or not restored.name
    repeated = max(0, max(done, default=0) - (restored.step or 0)) if is_known else 0
    return replace(old or CheckpointStatus(), restored=replace(restored, repeated_steps=repeated))


def checkpoint_events(old: TrainingStatus, new: TrainingStatus) -> Iterator[StatusEvent]:
    """Yields an event if a checkpoint was saved, and one if saving began to fail."""
    before, after = old.checkpoint or CheckpointStatus(), new.checkpoint or CheckpointStatus()
    if after.saved > before.saved:
        yield StatusEvent(NORMAL, reasons.CHECKPOINT_SAVED, f"{named(after)}, {size_text(after.size)}, is saved")
    if after.restored is not None and after.restored != before.restored:
        yield _restored_event(after.restored)
    if after.failed > before.failed and after.failure is not None:
        name = after.failure.name or "A checkpoint"
        yield StatusEvent(WARNING, reasons.CHECKPOINT_FAILED, f"{name} is not saved: {after.failure.reason}")


def unsaved_since(status: TrainingStatus) -> datetime | None:
    """Returns since when the training of a running job is not saved: its last checkpoint, or a later start.

    None if the job does not run.
    """
    running = conditions.find(status.conditions, conditions.RUNNING)
    if running is None or running.status != conditions.TRUE or status.completion_time is not None:
        return None
    saved = status.checkpoint.time if status.checkpoint is not None else None
    return parse_time_or_none(max(saved or "", running.last_transition_time))


def size_text(size: int) -> str:
    """Returns text such as `1.5 GiB`."""
    if size < 1024:
        return f"{size} B"
    value, unit = float(size), "B"
    for unit in _UNITS:  # noqa: B007 -- the last one is used
        value /= 1024
        if value < 1024:
            break
    return f"{value:.1f} {unit}"


def restored_text(restored: RestoredCheckpoint) -> str:
    """Returns text such as `continues from checkpoint-500 (step 500); 20 steps are done again`."""
    from_the_beginning = "starts from the beginning, because there is no checkpoint"
    note = f"continues from {named(restored)}" if restored.name else from_the_beginning
    steps = restored.repeated_steps
    return note + (f"; {steps} step{'s are' if steps > 1 else ' is'} done again" if steps else "")


def _restored_event(restored: RestoredCheckpoint) -> StatusEvent:
    note = f"Training {restored_text(restored)}"
    if not restored.skipped:
        return StatusEvent(NORMAL, reasons.CHECKPOINT_RESTORED, note)
    first, more = restored.skipped[0], len(restored.skipped) - 1
    others = f" (and {more} more)" if more else ""
    return StatusEvent(
        WARNING, reasons.CHECKPOINT_RESTORED, f"{note}. {first.name}{others} could not be restored: {first.reason}"
    )


def named(checkpoint: CheckpointStatus | RestoredCheckpoint) -> str:
    """Returns the name with the step, unless the name is only the step."""
    if checkpoint.step is None or checkpoint.name == str(checkpoint.step):
        return checkpoint.name
    return f"{checkpoint.name} (step {checkpoint.step})"


def _chronologically(line: CheckpointLine) -> tuple[str, int]:
    return line.order if isinstance(line, SavedCheckpoint) else (line.time, -2)


def _with_saved(status: CheckpointStatus, line: SavedCheckpoint) -> CheckpointStatus:
    if line.order <= (status.time or "", -1 if status.step is None else status.step):
        return status
    has_failed_since = status.failure is not None and status.failure.time > line.time
    return replace(
        status,
        name=line.name,
        step=line.step,
        time=line.time,
        size=line.size,
        uri=line.uri,
        saved=status.saved + 1,
        failure=status.failure if has_failed_since else None,
    )


def _with_failure(status: CheckpointStatus, line: UnsavedCheckpoint) -> CheckpointStatus:
    """Returns the status with the failure, unless it or a later one is recorded, or a checkpoint was saved since."""
    before = status.failure.time if status.failure is not None else ""
    if line.time <= max(before, status.time or ""):
        return status
    return replace(status, failed=status.failed + 1, failure=CheckpointFailure(line.name, line.reason, line.time))


def saver_container(pod: Pod) -> ContainerStatus | None:
    """Returns the status of the container that saves the pod's checkpoints."""
    return next((status for status in pod.status.init_container_statuses if status.name == SAVER), None)


def restored_in(pod: Pod) -> RestoredCheckpoint | None:
    """Returns what the pod's init container has restored, without repeated steps.

    Its name is empty if there was no checkpoint. None if it has not ended well, or its message is not one of the
    command `checkpoint restore`.
    """
    statuses = pod.status.init_container_statuses
    ended = next((status.state.terminated for status in statuses if status.name == RESTORER), None)
    if ended is None or ended.exit_code != 0 or not ended.finished_at or len(ended.message) > _LONGEST_MESSAGE:
        return None
    try:
        message = _decode(ended.message)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    restored = message.restored
    skipped = tuple(
        SkippedCheckpoint(checkpoint.name, printable(checkpoint.reason)) for checkpoint in (restored or message).skipped
    )
    if restored is None:
        return RestoredCheckpoint(time=ended.finished_at, skipped=skipped)
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
    if state.state != SUCCEEDED or pod is None or is_finished(pod) or not state.replica.saves_checkpoints:
        return 0.0
    saver, program = saver_container(pod), training_container(pod, state.replica.role.container)
    exited = last_exit(program) if program is not None else None
    if saver is None or saver.state.running is None or exited is None or not exited.finished_at:
        return 0.0
    return max(0.0, seconds_until(exited.finished_at, grace_seconds(state.replica) + REPORT_SECONDS, now))
