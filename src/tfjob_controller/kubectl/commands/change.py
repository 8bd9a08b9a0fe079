"""Commands that change a job: `scale`, `suspend`, `resume` and `delete`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.kubectl.arguments import (
    TFJOB,
    CommandHandler,
    add_cluster,
    add_job,
    add_timeout,
    count_argument,
    print_refusal,
)
from tfjob_controller.util.commandline import UsageError

if TYPE_CHECKING:
    from tfjob_controller.client.job import Job
    from tfjob_controller.kubectl.session import Session

_SCALE_EXAMPLES = """
kubectl tfjob scale train 4
kubectl tfjob scale train --replicas=4
"""


def _add_scale_arguments(parser: ArgumentParser) -> None:
    add_job(parser)
    what = "workers; of a TrainJob that has not started, nodes"
    parser.add_argument("number", metavar="N", type=count_argument, nargs="?", help=what)
    parser.add_argument("--replicas", metavar="N", type=count_argument, help="the same number, as for `kubectl scale`")
    add_cluster(parser)


def _run_scale(session: Session, parsed: Namespace) -> int:
    number = _number_of(parsed)
    job = session.job(parsed.job)
    job.scale(number)
    what = "worker" if job.kind == TFJOB else "node"
    print(f"{job.kind}/{job.name} scaled to {number} {what}{'' if number == 1 else 's'}")
    return 0


def _number_of(parsed: Namespace) -> int:
    given = [each for each in (parsed.number, parsed.replicas) if each is not None]
    if len(given) != 1:
        raise UsageError("say one number: `kubectl tfjob scale JOB N`, or --replicas=N")
    number: int = given[0]
    return number


_SUSPEND_EXAMPLES = """
kubectl tfjob suspend train
kubectl tfjob resume train
"""

EXIT_REFUSED = 1


def _add_suspend_arguments(parser: ArgumentParser) -> None:
    add_job(parser, several=True)
    add_cluster(parser)


def _run_suspend(session: Session, parsed: Namespace) -> int:
    # All of them are read first, so that a wrong name changes nothing.
    jobs = [session.job(each) for each in parsed.jobs]
    change = _suspend if parsed.command == "suspend" else _resume
    return max([change(job) for job in jobs])


def _suspend(job: Job) -> int:
    if job.snapshot.has_ended:
        return _refuse_ended(job, "suspended")
    if job.snapshot.job.spec.suspend:
        return _say(job, "is already suspended")
    job.suspend()
    return _say(job, "suspended")


def _resume(job: Job) -> int:
    if job.snapshot.has_ended:
        return _refuse_ended(job, "resumed")
    if not job.snapshot.job.spec.suspend:
        return _say(job, "is not suspended")
    job.resume()
    return _say(job, "resumed")


def _say(job: Job, words: str) -> int:
    print(f"{job.kind}/{job.name} {words}")
    return 0


def _refuse_ended(job: Job, what: str) -> int:
    how = "succeeded" if job.snapshot.has_succeeded else "failed"
    print_refusal(f"{job.kind}/{job.name} has {how}: a job that has ended cannot be {what}")
    return EXIT_REFUSED


_DELETE_EXAMPLES = """
kubectl tfjob delete train
kubectl tfjob delete tfjob/train trainjob/finetune --wait --timeout 5m
"""


def _add_delete_arguments(parser: ArgumentParser) -> None:
    add_job(parser, several=True)
    parser.add_argument("--wait", action="store_true", help="return once they are gone (pods may end later)")
    add_timeout(parser)
    add_cluster(parser)


def _run_delete(session: Session, parsed: Namespace) -> int:
    from tfjob_controller.client.errors import WaitTimeoutError
    from tfjob_controller.kubectl.commands.follow import EXIT_TIMEOUT

    # All of them first, so that a name that is wrong deletes nothing.
    jobs = [session.job(each) for each in parsed.jobs]
    for job in jobs:
        try:
            job.delete(wait=parsed.wait, timeout_seconds=parsed.timeout)
        except WaitTimeoutError as error:
            print_refusal(str(error))
            return EXIT_TIMEOUT
        print(f"{job.kind}/{job.name} deleted")
    return 0


HANDLERS = {
    "scale": CommandHandler(_SCALE_EXAMPLES, _add_scale_arguments, _run_scale),
    "suspend": CommandHandler(_SUSPEND_EXAMPLES, _add_suspend_arguments, _run_suspend),
    "resume": CommandHandler(_SUSPEND_EXAMPLES, _add_suspend_arguments, _run_suspend),
    "delete": CommandHandler(_DELETE_EXAMPLES, _add_delete_arguments, _run_delete),
}
