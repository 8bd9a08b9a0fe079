"""Commands that change jobs: `scale`, `suspend`, `resume` and `delete`."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from time import monotonic

from tfjob_controller.client.job import RESUMED, SCALED, SUSPENDED, Job, check_size, check_unended
from tfjob_controller.client.waitconditions import DELETED
from tfjob_controller.kubectl.argumenttypes import JobName, number_argument
from tfjob_controller.kubectl.command import CLIENT, SERVER
from tfjob_controller.kubectl.commands.selection import dry_run_text, for_each, selected_jobs, worst
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.commandline import UsageError
from tfjob_controller.util.exitcodes import EXIT_FAILED


def scale(session: Session, parsed: Namespace) -> int:
    number = _number(parsed)

    def change(job: Job) -> str:
        check_size(job.snapshot, number)
        check_unended(job.snapshot, SCALED)
        if parsed.dry_run != CLIENT:
            job.scale(number, dry_run=parsed.dry_run == SERVER)
        member = job.snapshot.kind.member
        return f"scaled to {number} {member}{'' if number == 1 else 's'}{dry_run_text(parsed)}"

    jobs = selected_jobs(session, parsed)
    return for_each(session, jobs, change) if jobs else EXIT_FAILED


def _number(parsed: Namespace) -> int:
    """The number of `--replicas`, or else the last word, which then is no job. Raises `UsageError`."""
    last = parsed.jobs[-1] if parsed.jobs else JobName("", "")
    needs_job = not (parsed.selector or parsed.all)
    is_number = last.name.removeprefix("-").isdecimal() and not last.kind
    if parsed.replicas is None and is_number and len(parsed.jobs) > needs_job:
        parsed.jobs.pop()
        try:
            return number_argument(last.name)
        except ArgumentTypeError as error:
            raise UsageError(str(error)) from None
    if parsed.replicas is None or (len(parsed.jobs) > needs_job and is_number):
        raise UsageError("give one number: `kubectl tfjob scale JOB N`, or --replicas=N")
    return int(parsed.replicas)


def suspend(session: Session, parsed: Namespace) -> int:
    return for_each(session, selected_jobs(session, parsed), lambda job: _set_suspended(job, True, parsed))


def resume(session: Session, parsed: Namespace) -> int:
    return for_each(session, selected_jobs(session, parsed), lambda job: _set_suspended(job, False, parsed))


def _set_suspended(job: Job, wanted: bool, parsed: Namespace) -> str:
    if job.snapshot.job.spec.suspend == wanted:
        done = "is already suspended" if wanted else "is not suspended"
    else:
        done = f"{'suspended' if wanted else 'resumed'}{dry_run_text(parsed)}"
    if parsed.dry_run == CLIENT:
        check_unended(job.snapshot, SUSPENDED if wanted else RESUMED)
        return done
    change = job.suspend if wanted else job.resume
    change(dry_run=parsed.dry_run == SERVER)
    return done


def delete(session: Session, parsed: Namespace) -> int:
    """All jobs are deleted before one is waited for, as kubectl does: their pods end side by side."""
    jobs, begin = selected_jobs(session, parsed), monotonic()
    waits = parsed.wait and not parsed.dry_run
    deleted: list[Job] = []

    def change(job: Job) -> str:
        if parsed.dry_run != CLIENT:
            job.delete(dry_run=parsed.dry_run == SERVER)
        deleted.append(job)
        return "" if waits else f"deleted{dry_run_text(parsed)}"

    def wait(job: Job) -> str:
        job.wait(DELETED, None if parsed.timeout is None else max(0.0, parsed.timeout - (monotonic() - begin)))
        return "deleted"

    code = for_each(session, jobs, change)
    return worst({code, for_each(session, deleted, wait)}) if waits else code
