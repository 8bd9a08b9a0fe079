"""`kubectl tfjob queue`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.kubectl.arguments import JSON, TABLE, WIDE, YAML, add_all_namespaces, add_cluster, add_output

if TYPE_CHECKING:
    from tfjob_controller.kubectl.session import Session

EXAMPLES = """
kubectl tfjob queue -A
kubectl tfjob queue -A -o wide
kubectl tfjob queue -o json
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_all_namespaces(parser)
    add_output(parser, TABLE, WIDE, JSON, YAML)
    add_cluster(parser)


def run(session: Session, parsed: Namespace) -> int:
    from datetime import UTC, datetime

    from tfjob_controller.kubectl.output import is_for_programs, print_value, say, screen
    from tfjob_controller.kubectl.queue import read_queue, rows_of, summary

    queue = read_queue(session.requester, session.scope)
    if is_for_programs(parsed.output):
        return print_value(queue, parsed.output)
    if not queue.waiting:
        say(f"No gang waits; {summary(queue)}.")
        return 0
    wide = parsed.output == WIDE
    screen().table(*rows_of(queue, datetime.now(UTC), with_namespace=not session.scope, wide=wide))
    say(f"{summary(queue)}; why one waits: kubectl tfjob describe NAME")
    return 0
