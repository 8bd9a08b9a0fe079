"""`kubectl tfjob scale`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.kubectl.arguments import TFJOB, add_cluster, add_job, count

if TYPE_CHECKING:
    from tfjob_controller.kubectl.session import Session

EXAMPLES = """
kubectl tfjob scale train 4
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument("number", metavar="N", type=count, help="workers; of a TrainJob that has not started, nodes")
    add_cluster(parser)


def run(session: Session, parsed: Namespace) -> int:
    job = session.job(parsed.job)
    job.scale(parsed.number)
    what = "worker" if job.kind == TFJOB else "node"
    print(f"{job.kind}/{job.name} scaled to {parsed.number} {what}{'' if parsed.number == 1 else 's'}")
    return 0
