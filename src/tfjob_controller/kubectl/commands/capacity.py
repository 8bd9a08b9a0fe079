"""Commands about the capacity of the cluster: `queue` and `top`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from tfjob_controller.kubectl.arguments import (
    JSON,
    TABLE,
    WIDE,
    YAML,
    CommandHandler,
    add_all_namespaces,
    add_cluster,
    add_output,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_controller.api.common.cluster import Node, ScheduledPod
    from tfjob_controller.kubectl.session import Session

_QUEUE_EXAMPLES = """
kubectl tfjob queue -A
kubectl tfjob queue -A -o wide
kubectl tfjob queue -o json
"""


def _add_queue_arguments(parser: ArgumentParser) -> None:
    add_all_namespaces(parser)
    add_output(parser, TABLE, WIDE, JSON, YAML)
    add_cluster(parser)


def _run_queue(session: Session, parsed: Namespace) -> int:
    from datetime import UTC, datetime

    from tfjob_controller.kubectl.gangqueue import read_queue, rows_of, summary
    from tfjob_controller.kubectl.output import Screen, is_for_programs, print_notice, print_value

    queue = read_queue(session.requester, session.scope)
    if is_for_programs(parsed.output):
        return print_value(queue, parsed.output)
    if not queue.waiting:
        print_notice(f"No gang waits; {summary(queue)}.")
        return 0
    wide = parsed.output == WIDE
    Screen().table(*rows_of(queue, datetime.now(UTC), with_namespace=not session.scope, wide=wide))
    print_notice(f"{summary(queue)}; why one waits: kubectl tfjob describe NAME")
    return 0


_TOP_EXAMPLES = """
kubectl tfjob top
kubectl tfjob top -A
kubectl tfjob top -A -o json
"""

_TIMEOUT_SECONDS = 30.0


def _add_top_arguments(parser: ArgumentParser) -> None:
    add_all_namespaces(parser)
    add_output(parser, TABLE, JSON, YAML)
    add_cluster(parser)


def _run_top(session: Session, parsed: Namespace) -> int:
    from tfjob_controller.kubectl.nodeusage import cluster_usage, rows_of
    from tfjob_controller.kubectl.output import Screen, is_for_programs, print_notice, print_value

    nodes, pods, why = _read(session)
    found = cluster_usage(pods, session.scope, nodes)
    if why:
        print_notice(f"What is free is not shown: {why}")
    if is_for_programs(parsed.output):
        return print_value(found, parsed.output)
    if not found.holdings and not found.nodes:
        print_notice(f"No job holds anything in {f'namespace {session.scope}' if session.scope else 'any namespace'}.")
        return 0
    Screen().table(*rows_of(found, with_namespace=not session.scope))
    return 0


def _read(session: Session) -> tuple[Sequence[Node] | None, Sequence[ScheduledPod], str]:
    """Nodes and the pods of all namespaces; without the right to see them, the jobs' pods alone, and why."""
    from tfjob_controller.api.common.cluster import NODES, decode_node, decode_scheduled_pod
    from tfjob_controller.api.common.core import PODS
    from tfjob_controller.kube.client import ResourceClient
    from tfjob_controller.kube.errors import ApiError
    from tfjob_controller.trainer.naming import CHILD_SELECTOR

    patience: dict[str, Any] = {"timeout_seconds": _TIMEOUT_SECONDS, "retry": False}
    pods = ResourceClient(session.requester, PODS, decode_scheduled_pod, **patience)
    try:
        nodes = ResourceClient(session.requester, NODES, decode_node, **patience).list()
        return nodes, pods.list(field_selector="status.phase!=Succeeded,status.phase!=Failed"), ""
    except ApiError as error:
        if not error.is_forbidden:
            raise
        why = f"{error.message} (ask for a role that may list nodes, and pods of all namespaces)"
    return None, pods.list(session.scope, CHILD_SELECTOR), why


HANDLERS = {
    "queue": CommandHandler(_QUEUE_EXAMPLES, _add_queue_arguments, _run_queue),
    "top": CommandHandler(_TOP_EXAMPLES, _add_top_arguments, _run_top),
}
