"""Where a job is on its way, in one word: upstream's, and on the wire."""

from __future__ import annotations

from tfjob_controller.api.trainingstatus import TrainingStatus

CREATING = "Creating"
RUNNING = "Running"
CLEAN_UP = "CleanUp"
DONE = "Done"
FAILED = "Failed"


def is_finished(status: TrainingStatus) -> bool:
    """Phase Done or Failed: nothing will ever be written again, but for the time to live."""
    return status.phase in (DONE, FAILED)
