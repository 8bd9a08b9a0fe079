"""The page that compares jobs: one metric of all in a chart, and their settings side by side.

The chart reads the metrics of each job as the job's own page does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.job import Job
from tfjob_controller.client.jobclass import JobClass, class_of
from tfjob_controller.client.kinds import status_of
from tfjob_controller.dashboard.jobreference import job_reference
from tfjob_controller.dashboard.manifesttext import small_manifest
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.settingsdiff import compare, settings_of
from tfjob_controller.dashboard.turns import BusyError
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.names import namespace_violation
from tfjob_controller.util.timestamps import parse_time_or_none

MAX_JOBS = 8
MAX_METRIC = 100
_ALL = "all"
# A reference of a kind, a namespace and a name.
_MAX_REFERENCE = 400
_MAX_OFFERED = 200


@dataclass(frozen=True, slots=True)
class ComparedJob:
    """A job on the page, by its reference `KIND/NAMESPACE/NAME`.

    `started` is in seconds since 1970; 0 if that is unknown. `settings` is None for a manifest that is too large.
    `problem` is why the job cannot be shown; the other fields are those of nothing then.
    """

    reference: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    job_class: JobClass = JobClass.STARTING
    has_ended: bool = False
    started: float = 0.0
    settings: Mapping[tuple[str, ...], str] | None = None
    problem: str = ""


async def compare_page(request: Request) -> Response:
    references = references_in(request.query_params.getlist("job"))
    is_whole = request.query_params.get("settings") == _ALL
    try:
        namespace = await _namespace(request, references)
        jobs = await asyncio.gather(*(_compared(request, reference) for reference in references[:MAX_JOBS]))
        with_settings = [job for job in jobs if job.settings is not None]
        settings = [job.settings or {} for job in with_settings]
        comparison = await rendering.read(request, lambda: compare(settings, is_whole=is_whole))
        offered = await _offered(request, namespace)
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, rendering.user_of(request).origin)
    return rendering.page(
        request,
        "compare.html",
        jobs=jobs,
        shown=[job for job in jobs if not job.problem],
        with_settings=with_settings,
        comparison=comparison,
        is_whole=is_whole,
        offered=[reference for reference in offered if reference not in references],
        left_out=max(0, len(references) - MAX_JOBS),
        most=MAX_JOBS,
        namespace=namespace,
        metric=request.query_params.get("metric", "")[:MAX_METRIC],
        address=partial(_address, request, references[:MAX_JOBS]),
    )


def references_in(texts: Iterable[str]) -> list[str]:
    """The references in texts, each job once. A text that names no job is kept, to show why."""
    return [*dict.fromkeys(_reference(text[:_MAX_REFERENCE].strip()) for text in texts if text.strip())]


def _reference(text: str) -> str:
    try:
        return str(job_reference(text))
    except ClientError:
        return text


def _address(request: Request, references: Sequence[str], without: str = "", settings: str | None = None) -> str:
    """The address of this comparison without a job, or with other settings shown."""
    query: list[tuple[str, str]] = [("job", reference) for reference in references if reference != without]
    kept: Mapping[str, Any] = {
        "metric": request.query_params.get("metric", "")[:MAX_METRIC],
        "settings": request.query_params.get("settings", "")[:MAX_METRIC] if settings is None else settings,
        "namespace": request.query_params.get("namespace"),
    }
    query += [(name, value) for name, value in kept.items() if value or (name == "namespace" and value is not None)]
    return f"/compare?{urlencode(query)}"


async def _namespace(request: Request, references: Sequence[str]) -> str:
    """The namespace whose jobs are offered: that of the first job, if there is one."""
    if references and references[0].count("/") == 2:
        namespace = references[0].split("/")[1]
        if not namespace_violation(namespace):
            return namespace
    return await rendering.namespace_of(request)


async def _compared(request: Request, reference: str) -> ComparedJob:
    """One job, or why it cannot be shown: others are shown nevertheless."""
    user = rendering.user_of(request)
    try:
        named = job_reference(reference)
        return await rendering.read(
            request, lambda: _job(reference, user.client.job(named.name, named.kind, named.namespace))
        )
    except (ApiError, ClientError) as error:
        if rendering.is_temporary(error) or isinstance(error, BusyError):
            raise
        return ComparedJob(reference, problem=rendering.message_of(error, user.origin))


def _job(reference: str, job: Job) -> ComparedJob:
    snapshot = job.snapshot
    started, manifest = parse_time_or_none(status_of(snapshot.job).start_time), small_manifest(snapshot)
    return ComparedJob(
        reference,
        job.kind,
        job.namespace,
        job.name,
        class_of(snapshot.job),
        snapshot.has_ended,
        started.timestamp() if started is not None else 0.0,
        None if manifest is None else settings_of(manifest.get("spec", {})),
    )


async def _offered(request: Request, namespace: str) -> Sequence[str]:
    """References of jobs that may be added, as far as they are known now."""
    user = rendering.user_of(request)
    if not await rendering.read(request, lambda: user.may_list_jobs(namespace)):
        return ()
    async with rendering.services(request).feeds.jobs(user, namespace) as feed:
        rows = sorted(feed.rows(), key=lambda row: row.metadata.creation_timestamp or "", reverse=True)
    return [f"{row.kind}/{row.metadata.namespace}/{row.metadata.name}" for row in rows[:_MAX_OFFERED]]
