"""The part of a job's status that describes its checkpoints, which all kinds of jobs share."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tfjob_controller.api.common.schema import describe

# A program reports at most this many for a restore.
MAX_SKIPPED = 5


class _StatusStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of the types here; unknown fields are dropped on decoding."""


class CheckpointFailure(_StatusStruct, frozen=True):
    """A checkpoint that could not be saved."""

    name: Annotated[str, describe("The name of the checkpoint; empty if the folder cannot be read.")] = ""
    reason: Annotated[str, describe("Why it is not saved.")] = ""
    time: Annotated[str, describe("When saving began to fail, by the node's clock.", format="date-time")] = ""


class SkippedCheckpoint(_StatusStruct, frozen=True):
    """A checkpoint that could not be restored, so that an older one was used."""

    name: Annotated[str, describe("The name of the checkpoint, or of its manifest.")] = ""
    reason: Annotated[str, describe("Why it was not restored.")] = ""


class RestoredCheckpoint(_StatusStruct, frozen=True):
    """The checkpoint from which the job continued when its pods were last started."""

    name: Annotated[
        str,
        describe("The name of the checkpoint; empty if there was none, so that training started from the beginning."),
    ] = ""
    step: Annotated[int | None, describe("Its training step. Absent without a number in its name.", format="int64")] = (
        None
    )
    time: Annotated[str | None, describe("When it was restored, by the node's clock.", format="date-time")] = None
    uri: Annotated[str, describe("The location of its files.")] = ""
    repeated_steps: Annotated[
        int,
        describe(
            "The number of repeated training steps: from its step to the last one that the metric step had reported "
            "before. 0 without this metric.",
            format="int64",
        ),
    ] = 0
    skipped: Annotated[
        tuple[SkippedCheckpoint, ...], describe("Newer checkpoints that could not be restored.", maxItems=MAX_SKIPPED)
    ] = ()


class CheckpointStatus(_StatusStruct, frozen=True):
    """The last checkpoint that is complete in the storage, the one last restored, and the last failure."""

    name: Annotated[str, describe("The name of the last saved checkpoint; empty if none is saved yet.")] = ""
    step: Annotated[
        int | None, describe("The training step: the last number in the name. Absent without a number.", format="int64")
    ] = None
    time: Annotated[str | None, describe("When it was saved, by the node's clock.", format="date-time")] = None
    size: Annotated[int, describe("Its size in bytes.", format="int64")] = 0
    uri: Annotated[str, describe("The location of its files.")] = ""
    saved: Annotated[int, describe("The number of checkpoints that were saved.", format="int64")] = 0
    failed: Annotated[int, describe("The number of times that saving began to fail.", format="int64")] = 0
    restored: Annotated[
        RestoredCheckpoint | None,
        describe(
            "The checkpoint from which the job continued when its pods were last started. Absent at a first start."
        ),
    ] = None
    failure: Annotated[
        CheckpointFailure | None, describe("The last failure to save a checkpoint, until a later one is saved.")
    ] = None
