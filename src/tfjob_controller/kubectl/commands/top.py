"""`kubectl tfjob top`: the requests of jobs on each node, and what is free."""

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
    """Headers and cells: for each node its jobs, then other pods, reservations, and free resources."""
    space = ["Namespace"] if with_namespace else []
    devices = _devices(cluster)
    headers = ["Node", *space, "Job", "CPU", "Memory", *devices, "Replicas"]
    blank = [""] * len(space)
    rows: list[list[str]] = []
    usages = {usage.node: usage for usage in cluster.nodes or ()}
    for node in sorted({holding.node for holding in cluster.holdings} | set(usages)):
        for holding in (holding for holding in cluster.holdings if holding.node == node):
            own = [holding.namespace] if with_namespace else []
            job = f"{holding.job} (deleted)" if holding.deleted else holding.job
            rows.append([node, *own, job, *_cells(holding.requests, devices), replica_ranges(holding.replicas)])
        if (usage := usages.get(node)) is not None:
            rows.append([node, *blank, "(other pods)", *_cells(usage.others, devices), _pods(usage.others)])
            if usage.reserved:
                rows.append([node, *blank, "(reserved)", *_cells(usage.reserved, devices), "for gangs"])
            rows.append([node, *blank, "(free)", *_cells(usage.free, devices), _pods(usage.free)])
    return headers, rows


def _devices(cluster: ClusterUsage) -> list[str]:
    """Extended resources, such as nvidia.com/gpu: a column each."""
    quantities = [holding.requests for holding in cluster.holdings] + [
        usage.allocatable for usage in cluster.nodes or ()
    ]
    return sorted({resource for amounts in quantities for resource in amounts if "/" in resource})


def _cells(quantities: Mapping[str, str], devices: Sequence[str]) -> list[str]:
    memory = amount_from(MEMORY, quantities.get(MEMORY, "0"))
    mebibytes = f"{memory // _MEBIBYTE}Mi" if memory else "0"
    return [quantities.get(CPU, "0"), mebibytes, *(quantities.get(device, "0") for device in devices)]


def _pods(quantities: Mapping[str, str]) -> str:
    number = quantities.get(POD_COUNT, "0")
    return f"{number} pod{'' if number == '1' else 's'}"


def show_usage(session: Session, parsed: Namespace) -> int:
    usage, why = read_usage(session.requester, session.scope)
    if why:
        print_notice(f"Free capacity is not shown: {why}")
    if is_for_programs(parsed.output):
        return print_value(usage, parsed.output)
    if not usage.holdings and not usage.nodes:
        print_notice(f"No job uses resources in {session.scope_text}.")
        return 0
    Screen().table(*rows_of(usage, with_namespace=not session.scope), with_headers=not parsed.no_headers)
    return 0
