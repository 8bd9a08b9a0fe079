"""Whose fault is it, where all replicas go on together? Who loses a fellow ends with an error, too, and often at once.

Of two that ended, the one that did so first is the cause: a permanent error after another replica was killed, evicted
or lost is a consequence, and all are started again; one before that is the program's own, and the job's end. Kubelets
tell of ends some moments after them, each in its own time, so a permanent error counts only after `GRACE_SECONDS`.

Times are the kubelets', in whole seconds; of two in the same second the one that may be tried again is taken for the
cause, for `maxRestarts` ends that, and nothing would undo a failed job.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tfjob_controller.trainer.state.replica_state import FAILED, ReplicaState
from tfjob_controller.util.timestamps import seconds_until

# A kubelet looks at its containers each second, and its report takes a while on a busy machine.
GRACE_SECONDS = 3.0


def is_consequence(failed: ReplicaState, restarting: Sequence[ReplicaState]) -> bool:
    """Did the failed replica end because of one of those that may be tried again?"""
    if not failed.replica.role.restarts_together:
        return False
    at = _ended_at(failed)
    return any(_ended_at(each) <= at for each in restarting)


def seconds_until_attributed(failed: ReplicaState, states: Sequence[ReplicaState], now: datetime) -> float:
    """How long it is still open whether the failed replica is the cause; 0 where it is."""
    fellows = [state for state in states if state.replica.role.restarts_together and state is not failed]
    ended = _ended_at(failed)
    if not failed.replica.role.restarts_together or not fellows or not ended:
        return 0.0
    return max(0.0, seconds_until(ended, GRACE_SECONDS, now))


def next_attribution_seconds(states: Sequence[ReplicaState], now: datetime) -> float | None:
    """When the first permanent error will count; None if none waits for that."""
    left = (seconds_until_attributed(state, states, now) for state in states if state.state == FAILED)
    return min((seconds for seconds in left if seconds > 0), default=None)


def _ended_at(state: ReplicaState) -> str:
    """Empty, which is before all else, of one that is lost with its node or deleted: it has not told its end."""
    return (state.exited.finished_at or "") if state.exited is not None else ""
