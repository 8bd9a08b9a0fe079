"""Changes of the jobs that are selected in the list: each one with the person's own rights, and answered by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from tfjob_controller.client.errors import ClientError, JobDeletedError
from tfjob_controller.client.job import Job
from tfjob_controller.dashboard.jobreference import job_reference
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.pages.forms import sent_fields
from tfjob_controller.dashboard.users import User
from tfjob_controller.kube.errors import ApiError

# Jobs of one request. A page of the list has as many.
MAX_JOBS = 100
MAX_SECONDS = 30.0
_CHANGES: Mapping[str, Callable[[Job], object]] = {"suspend": Job.suspend, "resume": Job.resume, "delete": Job.delete}
_PAST = {"suspend": "Suspended", "resume": "Resumed", "delete": "Deleted"}


@dataclass(frozen=True, slots=True)
class ChosenJob:
    """A job that the browser names. `uid` tells it from a later job with its name."""

    namespace: str
    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job was not changed. `is_gone`: it no longer exists, or another job has its name."""

    job: ChosenJob
    message: str
    is_gone: bool


async def change_jobs(request: Request) -> Response:
    """Suspends, resumes or deletes the jobs of the field `jobs`. The guard has checked the token against forgery."""
    user, action = rendering.user_of(request), request.path_params["action"]
    try:
        if action not in _CHANGES:
            raise ClientError(f"there is no action {action[:40]!r}")
        jobs = chosen_jobs((await sent_fields(request)).get("jobs", ""))
        refused = await rendering.read(request, lambda: list(refusals(user, _CHANGES[action], jobs)))
    except (ApiError, ClientError) as error:
        return rendering.page(request, "change_problem.html", message=rendering.message_of(error, user.origin))
    unchanged = {refusal.job for refusal in refused}
    changed = [job for job in jobs if job not in unchanged]
    return rendering.page(
        request, "jobs_changed.html", past=_PAST[action], action=action, changed=changed, refusals=refused
    )


def chosen_jobs(text: str) -> Sequence[ChosenJob]:
    """The jobs in lines such as `namespace/kind/name/uid`. Raises `ClientError`."""
    lines = list(dict.fromkeys(text.split()))
    if not lines or len(lines) > MAX_JOBS:
        raise ClientError(f"jobs: select from 1 to {MAX_JOBS} jobs, not {len(lines)}")
    return [_chosen(line) for line in lines]


def _chosen(line: str) -> ChosenJob:
    parts = line.split("/")
    if len(parts) != len(ChosenJob.__slots__):
        raise ClientError(f"jobs: not NAMESPACE/KIND/NAME/UID: {line[:80]!r}")
    namespace, kind, name, uid = parts
    try:
        named = job_reference(f"{kind}/{namespace}/{name}")
    except ClientError as error:
        raise ClientError(f"jobs: {error}") from None
    return ChosenJob(named.namespace, named.kind, named.name, uid)


def refusals(
    user: User,
    change: Callable[[Job], object],
    jobs: Sequence[ChosenJob],
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Refusal]:
    """Changes the jobs one after the other; yields those that are not changed.

    The rest is not tried after an error of the API server that may pass, or after `MAX_SECONDS`: a browser waits.
    """
    deadline, why = monotonic() + MAX_SECONDS, ""
    for chosen in jobs:
        if not why and monotonic() >= deadline:
            why = f"the jobs before it took {MAX_SECONDS:.0f} seconds"
        if why:
            yield Refusal(chosen, f"not tried: {why}", is_gone=False)
            continue
        try:
            job = user.client.job(chosen.name, chosen.kind, chosen.namespace)
            if job.uid != chosen.uid:
                raise JobDeletedError("it was deleted, and another job has its name: load the page")
            change(job)
        except (ApiError, ClientError) as error:
            message = rendering.message_of(error, user.origin)
            if rendering.is_temporary(error):
                why = message
            yield Refusal(chosen, message, rendering.is_gone(error))
