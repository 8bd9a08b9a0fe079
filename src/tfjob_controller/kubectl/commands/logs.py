"""`kubectl tfjob logs`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.kubectl.arguments import add_cluster, add_job, count

if TYPE_CHECKING:
    from tfjob_controller.kubectl.session import Session

EXAMPLES = """
kubectl tfjob logs train
kubectl tfjob logs train --replica worker-1 --tail 20
kubectl tfjob logs trainjob/finetune --replica all -f
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="wait for it to start, and show it as it comes, over restarts too"
    )
    parser.add_argument(
        "--replica",
        default="",
        metavar="REPLICA",
        help="worker-1, or all workers by `worker`, or `all`. Default: the chief",
    )
    parser.add_argument("--tail", type=count, metavar="N", help="the last N lines only")
    parser.add_argument("-p", "--previous", action="store_true", help="of the run before the last restart")
    add_cluster(parser)


def run(session: Session, parsed: Namespace) -> int:
    import sys

    from tfjob_controller.client.logs import LogOptions
    from tfjob_controller.kubectl.logs import print_logs

    options = LogOptions(parsed.replica, parsed.follow, parsed.previous, parsed.tail, over_restarts=True)
    return print_logs(session, session.job(parsed.job), options, sys.stdout)
