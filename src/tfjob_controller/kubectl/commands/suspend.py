"""`kubectl tfjob suspend` and `kubectl tfjob resume`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.kubectl.arguments import add_cluster, add_job

if TYPE_CHECKING:
    from tfjob_controller.kubectl.session import Session

EXAMPLES = """
kubectl tfjob suspend train
kubectl tfjob resume train
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_job(parser, several=True)
    add_cluster(parser)


def run(session: Session, parsed: Namespace) -> int:
    # All of them first, so that a name that is wrong changes nothing.
    for job in [session.job(each) for each in parsed.jobs]:
        if parsed.command == "suspend":
            job.suspend()
            print(f"{job.kind}/{job.name} suspended")
        else:
            job.resume()
            print(f"{job.kind}/{job.name} resumed")
    return 0
