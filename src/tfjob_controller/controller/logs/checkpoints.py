"""Follows the log of the container that saves the checkpoints of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tfjob_controller.api.common.core import Pod
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state.observed import CheckpointLine, ObservedState, pods_of
from tfjob_controller.jobs.state.pods import is_finished, newest
from tfjob_controller.jobs.status.checkpoints import saver_container


class CheckpointFollower(Protocol):
    """`controller.logs.follower.LogFollower`: reads the lines about checkpoints in the logs of jobs."""

    def follow_checkpoints(self, job_key: str, job_uid: str, pod: Pod, container: str) -> None: ...

    def checkpoint_lines_of(self, job_uid: str) -> Sequence[CheckpointLine]: ...

    def has_read_checkpoints(self, job_uid: str) -> bool: ...

    def forget_key(self, job_key: str) -> None: ...


def follow_checkpoints(
    follower: CheckpointFollower, job_key: str, job_uid: str, plan: Plan, observed: ObservedState
) -> ObservedState:
    """Follows the log of the container that saves the job's checkpoints. A job does not end before this log is read.

    For all kinds of jobs; does nothing for a job without such a container.
    """
    saver = plan.saving_replica
    if saver is None:
        return observed
    pod = newest(pods_of(saver, observed))
    if pod is not None and (container := saver_container(pod)) is not None:
        follower.follow_checkpoints(job_key, job_uid, pod, container.name)
        has_ended = is_finished(pod) or container.state.terminated is not None
        if has_ended and not follower.has_read_checkpoints(job_uid):
            observed = observed.with_unread()
    return observed.with_checkpoint_lines(follower.checkpoint_lines_of(job_uid))
