"""`kubectl tfjob delete`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.kubectl.arguments import add_cluster, add_job, add_timeout, refuse

if TYPE_CHECKING:
    from tfjob_controller.kubectl.session import Session

EXAMPLES = """
kubectl tfjob delete train
kubectl tfjob delete tfjob/train trainjob/finetune --wait --timeout 5m
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_job(parser, several=True)
    parser.add_argument("--wait", action="store_true", help="return once they are gone (pods may end later)")
    add_timeout(parser)
    add_cluster(parser)


def run(session: Session, parsed: Namespace) -> int:
    from tfjob_controller.client.errors import WaitTimeoutError
    from tfjob_controller.kubectl.commands.wait import EXIT_TIMEOUT

    # All of them first, so that a name that is wrong deletes nothing.
    jobs = [session.job(each) for each in parsed.jobs]
    for job in jobs:
        try:
            job.delete(wait=parsed.wait, timeout_seconds=parsed.timeout)
        except WaitTimeoutError as error:
            refuse(str(error))
            return EXIT_TIMEOUT
        print(f"{job.kind}/{job.name} deleted")
    return 0
