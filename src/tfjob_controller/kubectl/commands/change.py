"""Commands that change a job: `scale`, `suspend`, `resume` and `delete`.

Several jobs are all read before the first one is changed, so that a wrong name changes nothing.
"""

from __future__ import annotations

from argparse import Namespace

from tfjob_controller.client.errors import JobEndedError, WaitTimeoutError
from tfjob_controller.client.job import Job
from tfjob_controller.kubectl.command import EXIT_TIMEOUT
from tfjob_controller.kubectl.output import print_error
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.commandline import UsageError
from tfjob_controller.util.exitcodes import EXIT_FAILED
from tfjob_controller.util.terminal import print_line


def scale(session: Session, parsed: Namespace) -> int:
    given = [each for each in (parsed.number, parsed.replicas) if each is not None]
    if len(given) != 1:
        raise UsageError("say one number: `kubectl tfjob scale JOB N`, or --replicas=N")
    job = session.job(parsed.job)
    job.scale(given[0])
    member = job.snapshot.kind.member
    print_line(f"{job.kind}/{job.name} scaled to {given[0]} {member}{'' if given[0] == 1 else 's'}")
    return 0


def suspend(session: Session, parsed: Namespace) -> int:
    return max([_set_suspended(job, True) for job in [session.job(each) for each in parsed.jobs]])


def resume(session: Session, parsed: Namespace) -> int:
    return max([_set_suspended(job, False) for job in [session.job(each) for each in parsed.jobs]])


def _set_suspended(job: Job, wanted: bool) -> int:
    if job.snapshot.job.spec.suspend == wanted:
        done = "is already suspended" if wanted else "is not suspended"
    else:
        done = "suspended" if wanted else "resumed"
    try:
        job.suspend() if wanted else job.resume()
    except JobEndedError as error:
        print_error(str(error))
        return EXIT_FAILED
    print_line(f"{job.kind}/{job.name} {done}")
    return 0


def delete(session: Session, parsed: Namespace) -> int:
    for job in [session.job(each) for each in parsed.jobs]:
        try:
            job.delete(wait=parsed.wait, timeout_seconds=parsed.timeout)
        except WaitTimeoutError as error:
            print_error(str(error))
            return EXIT_TIMEOUT
        print_line(f"{job.kind}/{job.name} deleted")
    return 0
