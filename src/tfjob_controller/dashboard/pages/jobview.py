"""What the page of a job shows and keeps up to date: the head of the page, and the details below charts and log.

The diagnosis, the timeline and the description are those of `client.diagnostics`, as `kubectl tfjob` prints them.
Whoever may not read pods or events sees what is left, and which right is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TypeVar

import msgspec

from tfjob_controller.client.diagnostics.collection import collect_diagnostics
from tfjob_controller.client.diagnostics.description import (
    Description,
    EventRow,
    describe,
    reported_text,
    summary,
)
from tfjob_controller.client.diagnostics.diagnosis import BLOCKING_REASONS, diagnose
from tfjob_controller.client.diagnostics.replicas import replica_views
from tfjob_controller.client.diagnostics.timeline import fold_entries, pattern_of, timeline
from tfjob_controller.client.errors import ClientError, error_text
from tfjob_controller.client.job import Job
from tfjob_controller.client.jobclass import JobClass, class_of
from tfjob_controller.client.kinds import AnyJob, kind_of
from tfjob_controller.client.reader import Reader
from tfjob_controller.dashboard.feeds import JobView
from tfjob_controller.dashboard.gantt import gantt
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.replicatable import ailing, containers_of, replica_table
from tfjob_controller.dashboard.shownuse import ShownUse
from tfjob_controller.dashboard.users import User
from tfjob_controller.jobs.evaluation.silence import AGGREGATED
from tfjob_controller.jobs.state.observed import ObservedState
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import server_now

MAX_TIMELINE = 200
# Where the details begin in the text of a view. A stream sends both at once; htmx swaps the details by their id.
_DETAILS = '<div id="details"'

ReadT = TypeVar("ReadT")


@dataclass(frozen=True, slots=True)
class SeenJob:
    """`problems` name the rights that are missing, with the remedy."""

    description: Description
    problems: tuple[str, ...] = ()


def seen_job(user: User, job: Job) -> SeenJob:
    """The description of a job, as far as this person may read its parts. Raises `ApiError` and `ClientError`."""
    try:
        return SeenJob(job.describe())
    except ClientError as error:
        if not rendering.is_forbidden(error):
            raise
    snapshot, reader = job.snapshot, Reader(user.requester, job.namespace, job.snapshot.kind)
    problems: dict[str, None] = {}

    def readable(read: Callable[[], ReadT], otherwise: ReadT) -> ReadT:
        try:
            return read()
        except ApiError as error:
            if not error.is_forbidden:
                raise
            problems[error_text(error, user.origin)] = None
            return otherwise

    children = readable(lambda: reader.children(snapshot.job), ObservedState())
    views = () if problems else replica_views(snapshot.job, children, server_now(user.requester))
    description = describe(snapshot.job, views, lambda uid: readable(lambda: reader.events(uid), ()))
    return SeenJob(description, tuple(problems))


def view_of(user: User, job: Job, manifest: Callable[[Job], str], use: ShownUse) -> JobView:
    """What the page shows; `parts_of` takes its text apart. Raises `ApiError` and `ClientError`."""
    seen = seen_job(user, job)
    description = seen.description
    case = collect_diagnostics(user.requester, job.snapshot, user.controller_namespace)
    now = server_now(user.requester)
    entries = fold_entries(timeline(case))
    chart = gantt(case, now, ailing(description))
    events = folded_events(description.events)
    warnings = [event for event in events if event.type == "Warning"]
    html = rendering.render(
        "job_view.html",
        job=job,
        now=now,
        job_class=_class_of(job, description),
        diagnosis=diagnose(case, now),
        reported=reported_text(description, now),
        summary=summary(description),
        description=description,
        is_suspended=job.snapshot.job.spec.suspend,
        has_ended=job.snapshot.has_ended,
        chart=chart,
        table=replica_table(description, chart),
        containers={
            role: asdict(containers) for role, containers in containers_of(case, _programs(job.snapshot.job)).items()
        },
        events=events,
        warnings=warnings,
        warning_count=sum(event.count for event in warnings),
        entries=entries[-MAX_TIMELINE:],
        hidden_entries=max(0, len(entries) - MAX_TIMELINE),
        problems=[*seen.problems, *_unread(case.unread, seen.problems)],
        manifest=manifest(job),
        use=use,
    )
    return JobView(html, [replica.replica for replica in description.replicas])


def _class_of(job: Job, description: Description) -> JobClass:
    """The class that the list shows, or a better one: the page has read the pods."""
    job_class = class_of(job.snapshot.job)
    if job_class not in (JobClass.STARTING, JobClass.RUNNING):
        return job_class
    is_blocked = any(replica.state in BLOCKING_REASONS for replica in description.replicas)
    return JobClass.NEEDS_YOU if is_blocked else job_class


def folded_events(events: Iterable[EventRow]) -> list[EventRow]:
    """One row for the events of one cause, oldest first: the newest of them, with the sum of their counts.

    Those of a job differ in numbers, such as that of a restart.
    """
    groups: dict[tuple[str, ...], EventRow] = {}
    for event in events:
        event = msgspec.structs.replace(event, note=event.note.removeprefix(AGGREGATED).lstrip())
        key = event.type, event.reason, pattern_of(event.note, event.about)
        before = groups.pop(key, None)
        groups[key] = event if before is None else msgspec.structs.replace(event, count=before.count + event.count)
    return list(groups.values())


def parts_of(view: str) -> tuple[str, str]:
    """The head and the details of a view. Text of a cluster, which is escaped, cannot begin the details."""
    head, begin, details = view.partition(_DETAILS)
    return head, begin + details


def _unread(lines: Iterable[str], problems: Iterable[str]) -> list[str]:
    """Without those that say no more than a problem."""
    return [line for line in lines if not any(line.partition(": ")[2] in problem for problem in problems)]


def _programs(job: AnyJob) -> dict[str, str]:
    """The name of the container that trains, by role."""
    kind = kind_of(job)
    plan = kind.plan_of(job) if kind.problem_of(job) is None else None
    plans = (plan, *plan.steps) if plan is not None else ()
    return {role.name: role.container for step in plans for role in step.replicas.roles}
