"""The jobs that a command acts on, by name or selector, and one line for each.

The jobs are all read before the first one is changed, so that a wrong name changes nothing; they are changed one after
the other.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence

from tfjob_controller.client.errors import ClientError, JobDeletedError, JobEndedError, WaitTimeoutError
from tfjob_controller.client.job import Job
from tfjob_controller.kubectl.command import CLIENT, EXIT_TIMEOUT, SERVER
from tfjob_controller.kubectl.output import print_error, print_notice
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.commandline import UsageError
from tfjob_controller.util.exitcodes import EXIT_FAILED
from tfjob_controller.util.terminal import print_line

_CLIENT_ERRORS = range(400, 500)
_OF_THE_CALLER = (401, 429)


def check_selection(parsed: Namespace) -> None:
    """Raises `UsageError` unless the jobs are given in one way."""
    if sum(map(bool, (parsed.jobs, parsed.selector, parsed.all))) != 1:
        raise UsageError("choose jobs in one way: by NAME, with -l SELECTOR, or with --all")


def selected_jobs(session: Session, parsed: Namespace) -> list[Job]:
    """Raises `UsageError` unless the jobs are given in one way, and `ClientError` for a name that no job has."""
    check_selection(parsed)
    if parsed.jobs:
        return [session.job(name) for name in parsed.jobs]
    jobs = list(session.client.jobs(label_selector=parsed.selector))
    if not jobs:
        print_notice(f"No jobs{' with these labels' if parsed.selector else ''} in {session.scope_text}.")
    return jobs


def for_each(session: Session, jobs: Sequence[Job], change: Callable[[Job], str]) -> int:
    """Prints for each job what `change` returns, unless that is empty, or its error; returns the exit code.

    An error that the next job would have too, such as a missing right, is raised.
    """
    codes = {0}
    for job in jobs:
        try:
            if done := change(job):
                print_line(f"{job.kind}/{job.name} {done}")
        except ClientError as error:
            if not _is_of_job(error):
                raise
            print_error(session.aimed(str(error)))
            codes.add(EXIT_TIMEOUT if isinstance(error, WaitTimeoutError) else EXIT_FAILED)
    return worst(codes)


def _is_of_job(error: ClientError) -> bool:
    """Whether another job may have no such error."""
    if isinstance(error, (JobEndedError, JobDeletedError, WaitTimeoutError)):
        return True
    if (answer := error.api_error) is None:
        return True
    # RBAC's refusals name the missing right; those of policies and quotas concern one object.
    may_not = answer.is_forbidden and " cannot " in answer.message
    return answer.status in _CLIENT_ERRORS and answer.status not in _OF_THE_CALLER and not may_not


def worst(codes: set[int]) -> int:
    """A failure counts more than a timeout."""
    return EXIT_FAILED if EXIT_FAILED in codes else max(codes, default=0)


def dry_run_text(parsed: Namespace) -> str:
    """What follows the line of a change that is not made; as kubectl's."""
    return {CLIENT: " (dry run)", SERVER: " (server dry run)"}.get(parsed.dry_run or "", "")
