"""What the statuses of several kinds have in common on the wire."""

from __future__ import annotations

from typing import Any

from tfjob_controller.jobs.state import replica_state

# They have the names of `TrainingStatus` and `Scaling`.
_FIELDS = (
    "phase",
    "reason",
    "summary",
    "observed_generation",
    "start_time",
    "completion_time",
    "restarts",
    "disruptions",
    "restart_counts",
    "succeeded_indexes",
)
_FIELDS_OF_SCALING = ("before", "target", "target_reason", "reason")


def shared_fields(status: object) -> dict[str, Any]:
    """Returns the fields that the statuses of all these kinds have, and `TrainingStatus` too."""
    return {name: getattr(status, name) for name in _FIELDS}


def shared_scaling(scaling: object) -> dict[str, Any]:
    """Returns the fields that the scaling of all these kinds has, and `Scaling` too."""
    return {name: getattr(scaling, name) for name in _FIELDS_OF_SCALING}


def role_state(counts: dict[str, int]) -> str:
    """Returns Failed if any index failed, else Running if any runs, else Succeeded if all did, else Unknown."""
    if replica_state.FAILED in counts:
        return replica_state.FAILED
    if replica_state.RUNNING in counts:
        return replica_state.RUNNING
    return replica_state.SUCCEEDED if list(counts) == [replica_state.SUCCEEDED] else replica_state.UNKNOWN


# A longer text is no number of replicas.
_MAX_DIGITS = 9


def ready_count(text: str) -> int:
    """Returns the first number of a text such as `3/4`; 0 for any other text."""
    ready, _, _ = text.partition("/")
    return int(ready) if ready.isascii() and ready.isdecimal() and len(ready) <= _MAX_DIGITS else 0
