"""`kubectl tfjob suspend` and `kubectl tfjob resume`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.kubectl.arguments import add_cluster, add_job, refuse

if TYPE_CHECKING:
    from tfjob_controller.client.job import Job
    from tfjob_controller.kubectl.session import Session

EXAMPLES = """
kubectl tfjob suspend train
kubectl tfjob resume train
"""

EXIT_REFUSED = 1


def add_arguments(parser: ArgumentParser) -> None:
    add_job(parser, several=True)
    add_cluster(parser)


def run(session: Session, parsed: Namespace) -> int:
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
    refuse(f"{job.kind}/{job.name} has {how}: a job that has ended cannot be {what}")
    return EXIT_REFUSED
