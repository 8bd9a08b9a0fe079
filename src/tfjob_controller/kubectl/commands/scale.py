"""`kubectl tfjob scale`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.kubectl.arguments import TFJOB, UsageError, add_cluster, add_job, count

if TYPE_CHECKING:
    from tfjob_controller.kubectl.session import Session

EXAMPLES = """
kubectl tfjob scale train 4
kubectl tfjob scale train --replicas=4
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_job(parser)
    what = "workers; of a TrainJob that has not started, nodes"
    parser.add_argument("number", metavar="N", type=count, nargs="?", help=what)
    parser.add_argument("--replicas", metavar="N", type=count, help="the same number, as for `kubectl scale`")
    add_cluster(parser)


def run(session: Session, parsed: Namespace) -> int:
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
