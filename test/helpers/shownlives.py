"""What the cluster showed of one pod or Job: a sequence of views, which have only what decisions read.

A fake may skip what a watch may skip. It never shows a view that no recording (`helpers.recordedlives`) has, nor views
in another order.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from helpers.recordedlives import recorded_lives
from tfjob_controller.api.common.core import BatchJob, ContainerState, ContainerStatus, Pod
from tfjob_controller.api.tfjob.types import CONTAINER_NAME
from tfjob_controller.jobs.state.pods import given_up_since, native_sidecars

View = tuple[str, ...]

# The containers whose exit codes decide. All others are sidecars.
MAIN = frozenset((CONTAINER_NAME, "node", "launcher", "dataset-initializer", "model-initializer", "model-exporter"))
_OUTCOMES = ("Complete", "Failed", "FailureTarget")


@dataclass
class Shown:
    """Collects views by the type and the UID of the object.

    Pods without containers, which few recordings show being deleted, are left out, and so is what is written to Jobs
    after their end.
    """

    views: dict[tuple[type, str], list[View]] = field(default_factory=dict)

    def take(self, *objects: Pod | BatchJob) -> None:
        for each in objects:
            if isinstance(each, Pod) and not each.status.container_statuses:
                continue
            views = self.views.setdefault((type(each), each.metadata.uid), [])
            is_over = isinstance(each, BatchJob) and bool(views) and not {"Complete", "Failed"}.isdisjoint(views[-1])
            if not is_over and (view := view_of(each)) not in views[-1:]:
                views.append(view)

    def unreal(self) -> list[str]:
        """Returns the sequences that are of no recorded life; a view that is in no recording is marked."""
        unreal = (each for each in self.views.values() if not any(_is_part(each, life) for life in recorded_views()))
        known = set(itertools.chain.from_iterable(recorded_views()))
        return [" → ".join(f"{'' if view in known else '!'}{', '.join(view)}" for view in views) for views in unreal]


@functools.cache
def recorded_views() -> Collection[tuple[View, ...]]:
    """Returns the different lives of pods and Jobs in all recordings."""
    lives = []
    for life in recorded_lives():
        shown = Shown()
        shown.take(*(moment.obj for moment in life.moments if moment.obj is not None))
        lives += map(tuple, shown.views.values())
    return frozenset(lives)


def view_of(obj: Pod | BatchJob) -> View:
    return tuple(_pod_words(obj) if isinstance(obj, Pod) else _job_words(obj))


def _pod_words(pod: Pod) -> Iterator[str]:
    yield pod.status.phase or "Pending"
    if pod.metadata.deletion_timestamp is not None:
        yield "deleting" if pod.metadata.deletion_grace_period_seconds else "deleting at once"
    if pod.status.reason:
        yield pod.status.reason
    if any(each.type == "DisruptionTarget" and each.status == "True" for each in pod.status.conditions):
        yield "disrupted"
    if given_up_since(pod) is not None:
        yield "given up"
    natives = native_sidecars(pod)
    inits = (_container_words("native" if each.name in natives else "init", each) for each in _open_inits(pod))
    others = (
        _container_words("main" if each.name in MAIN else "sidecar", each) for each in pod.status.container_statuses
    )
    yield from sorted((*inits, *others))


def _open_inits(pod: Pod) -> Iterator[ContainerStatus]:
    """Yields the init containers without those that have succeeded, which say nothing any more."""
    for each in pod.status.init_container_statuses:
        if each.state.terminated is None or each.state.terminated.exit_code:
            yield each


def _container_words(role: str, status: ContainerStatus) -> str:
    again = f" after {status.restart_count} {_state(status.last_state)}" if status.restart_count else ""
    return f"{role} {_state(status.state)}{again}"


def _state(state: ContainerState) -> str:
    if state.terminated is not None:
        code = state.terminated.exit_code
        return "ended with " + ("0" if code == 0 else "1-127" if code < 128 else "128-255")
    return "running" if state.running is not None else "waiting"


def _job_words(job: BatchJob) -> Iterator[str]:
    status = job.status
    flags = {"suspend": job.spec.suspend, "active": status.active, "failed": status.failed}
    yield from (name for name, value in flags.items() if value)
    if status.completed_indexes:
        yield f"completed={status.completed_indexes}"
    yield from sorted(each.type for each in status.conditions if each.status == "True" and each.type in _OUTCOMES)


def _is_part(views: Sequence[View], life: Iterable[View]) -> bool:
    """Reports whether `views` is `life` with some of its views skipped."""
    rest = iter(life)
    return all(view in rest for view in views)
