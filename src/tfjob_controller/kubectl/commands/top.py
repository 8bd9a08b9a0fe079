"""`kubectl tfjob top`: the requests of jobs on each node, what they use of them, and what is free."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence

from tfjob_controller.api.common.quantity import CPU, MEMORY, amount_from
from tfjob_controller.api.common.quantity import PODS as POD_COUNT
from tfjob_controller.client.text import replica_ranges
from tfjob_controller.client.usage import ClusterUsage, read_usage
from tfjob_controller.kubectl.output import Screen, is_for_programs, print_notice, print_value
from tfjob_controller.kubectl.session import Session

_MEBIBYTE = 2**20


def rows_of(cluster: ClusterUsage, *, with_namespace: bool) -> tuple[list[str], list[list[str]]]:
    """Returns the headers and the rows. For each node: a row for each of its jobs, other pods, reservations, and the
    free resources. What is used has columns if it is known of a job.
    """
    devices = _devices(cluster)
    has_used = any(holding.used for holding in cluster.holdings)

    def row(
        node: str, namespace: str, who: str, amounts: Mapping[str, str], pods: str, used: Mapping[str, str] = {}
    ) -> list[str]:
        cells = [*_cells(amounts, devices), *(_used_cells(used) if has_used else [])]
        return [node, *([namespace] if with_namespace else []), who, *cells, pods]

    rows: list[list[str]] = []
    usages = {usage.node: usage for usage in cluster.nodes or ()}
    for node in sorted({holding.node for holding in cluster.holdings} | set(usages)):
        for holding in (holding for holding in cluster.holdings if holding.node == node):
            job = f"{holding.job} (deleted)" if holding.deleted else holding.job
            replicas = replica_ranges(holding.replicas)
            rows.append(row(node, holding.namespace, job, holding.requests, replicas, holding.used))
        if (usage := usages.get(node)) is not None:
            rows.append(row(node, "", "(other pods)", usage.others, _pods(usage.others)))
            if usage.reserved:
                rows.append(row(node, "", "(reserved)", usage.reserved, "for gangs"))
            rows.append(row(node, "", "(free)", usage.free, _pods(usage.free)))
    space = ["Namespace"] if with_namespace else []
    used = ["CPU used", "Memory used"] if has_used else []
    return ["Node", *space, "Job", "CPU", "Memory", *devices, *used, "Replicas"], rows


def _devices(cluster: ClusterUsage) -> list[str]:
    """Returns the names of extended resources, such as nvidia.com/gpu, each of which has a column."""
    quantities = [holding.requests for holding in cluster.holdings]
    quantities += [usage.allocatable for usage in cluster.nodes or ()]
    return sorted({resource for amounts in quantities for resource in amounts if "/" in resource})


def _cells(quantities: Mapping[str, str], devices: Sequence[str]) -> list[str]:
    return [quantities.get(CPU, "0"), _memory(quantities), *(quantities.get(device, "0") for device in devices)]


def _used_cells(used: Mapping[str, str]) -> list[str]:
    return [used.get(CPU, "0"), _memory(used)] if used else ["", ""]


def _memory(quantities: Mapping[str, str]) -> str:
    memory = amount_from(MEMORY, quantities.get(MEMORY, "0"))
    return f"{memory // _MEBIBYTE}Mi" if memory else "0"


def _pods(quantities: Mapping[str, str]) -> str:
    number = quantities.get(POD_COUNT, "0")
    return f"{number} pod{'' if number == '1' else 's'}"


def show_usage(session: Session, parsed: Namespace) -> int:
    usage, why = read_usage(session.requester, session.scope, session.client.kinds(), with_used=True)
    if why:
        print_notice(f"Free capacity is not shown: {why}")
    if is_for_programs(parsed.output):
        return print_value(usage, parsed.output)
    if not usage.holdings and not usage.nodes:
        print_notice(f"No job uses resources in {session.scope_text}.")
        return 0
    Screen().table(*rows_of(usage, with_namespace=not session.scope), with_headers=not parsed.no_headers)
    return 0
