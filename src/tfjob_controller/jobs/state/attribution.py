"""Failure attribution: which of several failures of a set is the cause.

In synchronous training a replica that loses a peer usually fails as well, often within a second and with an ordinary
error. Only the first failure is the cause. If the first replica to end was killed, evicted or lost with its node, a
permanent error of another replica is a consequence, and the whole set restarts. If a permanent error came first, it is
the program's own and ends the job. Kubelets report terminations with a delay, each on its own schedule, so a permanent
error is attributed only after `GRACE_SECONDS`. Termination times have a resolution of one second; a tie is decided in
favor of the retryable failure, because `maxRestarts` bounds restarts, whereas a failed job cannot be undone.

All functions are pure. Times are RFC 3339 strings as kubelets write them; `now` is timezone-aware.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tfjob_controller.jobs.state.replica_state import FAILED, ReplicaState
from tfjob_controller.util.timestamps import seconds_until

# The kubelet's sync loop runs every second; a busy node needs three of them to report a termination. One more is added,
# since timestamps have whole seconds.
GRACE_SECONDS = 4.0


def is_consequence(failed: ReplicaState, restarting: Sequence[ReplicaState]) -> bool:
    """Reports whether `failed` ended because one of `restarting`, which may be retried, had ended before it."""
    if not failed.replica.role.restarts_together:
        return False
    finish_time = finish_time_of(failed)
    return any(finish_time_of(peer) <= finish_time for peer in restarting)


def seconds_until_attributed(failed: ReplicaState, states: Sequence[ReplicaState], now: datetime) -> float:
    """Returns how long the cause of this failure stays open, or 0.0 if it is decided."""
    peers = [state for state in states if state.replica.role.restarts_together and state is not failed]
    finish_time = finish_time_of(failed)
    if not failed.replica.role.restarts_together or not peers or not finish_time:
        return 0.0
    return max(0.0, seconds_until(finish_time, GRACE_SECONDS, now))


def next_attribution_seconds(states: Sequence[ReplicaState], now: datetime) -> float | None:
    """Returns when the earliest open permanent error is attributed, or None if none is open."""
    open_seconds = (seconds_until_attributed(state, states, now) for state in states if state.state == FAILED)
    return min((seconds for seconds in open_seconds if seconds > 0), default=None)


def first_failure(failed: Sequence[ReplicaState]) -> ReplicaState:
    """Returns the replica that ended first; of several, the first one in the plan's order."""
    return min(failed, key=finish_time_of)


def finish_time_of(state: ReplicaState) -> str:
    """Returns the termination time; empty, which sorts first, if the replica was deleted or its node was lost."""
    return (state.exited.finished_at or "") if state.exited is not None else ""
