"""How urgent is it that a job is looked at?

Theory of operation. When 1,000 jobs are created at once, their first syncs fill the queue for minutes. What asks for
something to be done in a job that runs goes before them: a replica ends, fails or goes, its gang gets room, its spec
is changed. These are few for each job. All else keeps its place between the first syncs: the children that we made
ourselves come back from the watch, pods get a node, start and are ready. That is to be said, and children come before
words: with starts among what is urgent the children of a burst came later, once by 13 % (docs/benchmarks.md).
What the initial list brings goes last.

None waits for ever, however many are urgent: see `kube.workqueue.queue`.
"""

from __future__ import annotations

from tfjob_controller.api.core import Job, Pod
from tfjob_controller.api.gang import Gang
from tfjob_controller.kube.meta import Object
from tfjob_controller.trainer.pods import is_finished

URGENT = 100
LIVE = 0
# controller-runtime's number for the same.
INITIAL = -100


def of_pod(old: Pod, new: Pod) -> int:
    """It ends or goes, or a container of it ends."""
    return _of(_turns_of_pod(old) != _turns_of_pod(new))


def of_job(old: Job, new: Job) -> int:
    """Of a child Job: it is over, it is suspended or resumed, it goes."""
    return _of(_goes(old, new) or old.status.conditions != new.status.conditions)


def of_gang(old: Gang, new: Gang) -> int:
    """It gets room or loses it, or is to be resized. Its place in the queue is mere words."""
    return _of(_goes(old, new) or _turns_of_gang(old) != _turns_of_gang(new))


def of_other(old: Object, new: Object) -> int:
    """Of a child of which only matters whether it is there."""
    return _of(_goes(old, new))


def _of(is_urgent: bool) -> int:
    return URGENT if is_urgent else LIVE


def _goes(old: Object, new: Object) -> bool:
    return old.metadata.deletion_timestamp != new.metadata.deletion_timestamp


def _turns_of_pod(pod: Pod) -> object:
    ends = [(each.restart_count, each.state.terminated) for each in pod.status.container_statuses]
    return pod.metadata.deletion_timestamp, is_finished(pod), [each for each in ends if any(each)]


def _turns_of_gang(gang: Gang) -> object:
    status = gang.status
    return status.phase, status.attempt, status.target_members, status.leaving
