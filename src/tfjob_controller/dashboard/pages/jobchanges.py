"""Changes of the jobs that are selected in the list: each one with the person's own rights, and answered by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from tfjob_controller.client.errors import ClientError, JobDeletedError
from tfjob_controller.client.job import Job
from tfjob_controller.client.kinds import kinds_named
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.pages.forms import sent_fields
from tfjob_controller.dashboard.users import User
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.names import name_violation, namespace_violation

# Jobs of one request. A page of the list has as many.
MAX_JOBS = 100
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
        refusals = await rendering.read(request, lambda: list(_refusals(user, action, jobs)))
    except (ApiError, ClientError) as error:
        return rendering.page(request, "change_problem.html", message=rendering.message_of(error, user.origin))
    refused = {refusal.job for refusal in refusals}
    changed = [job for job in jobs if job not in refused]
    return rendering.page(
        request, "jobs_changed.html", past=_PAST[action], action=action, changed=changed, refusals=refusals
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
    # They become parts of API paths.
    if violation := namespace_violation(namespace) or name_violation(name):
        raise ClientError(f"jobs: a namespace or name of {line[:80]!r} {violation}")
    kinds_named(kind)
    return ChosenJob(namespace, kind, name, uid)


def _refusals(user: User, action: str, jobs: Sequence[ChosenJob]) -> Iterator[Refusal]:
    for chosen in jobs:
        try:
            job = user.client.job(chosen.name, chosen.kind, chosen.namespace)
            if job.uid != chosen.uid:
                raise JobDeletedError("it was deleted, and another job has its name: load the page")
            _CHANGES[action](job)
        except (ApiError, ClientError) as error:
            yield Refusal(chosen, rendering.message_of(error, user.origin), rendering.is_gone(error))
