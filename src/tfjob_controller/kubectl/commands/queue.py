"""`kubectl tfjob queue`: the gangs that wait for capacity, in the order in which they will start."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime

from tfjob_controller.api.common.quantity import amount_from, quantity_of
from tfjob_controller.api.gang import Missing
from tfjob_controller.client.gangqueue import GangQueue, held_text, read_queue, report_origin, share_text
from tfjob_controller.client.holders import Waits, end_text, read_waits, start_text
from tfjob_controller.client.text import age
from tfjob_controller.kube.names import SYSTEM_NAMESPACE
from tfjob_controller.kube.requester import server_now
from tfjob_controller.kubectl.command import WIDE
from tfjob_controller.kubectl.output import Screen, is_for_programs, print_notice, print_value
from tfjob_controller.kubectl.session import Session


def summary(queue: GangQueue) -> str:
    """The line below the table: how many gangs have capacity, or what to check where no gang scheduler decides."""
    look = (
        "check that one runs: kubectl get pods -A -l app=gang-scheduler "
        "(docs/gang-scheduling.md describes the installation)"
    )
    if queue.unseen and queue.unseen == len(queue.waiting) and not queue.running:
        return f"no gang scheduler has processed any gang; {look}"
    running = f"{_gangs(queue.running)} with capacity"
    if queue.unseen:
        return f"{running}; no gang scheduler has processed {_gangs(queue.unseen)} yet; {look}"
    return running


def _gangs(count: int) -> str:
    return f"{count} gang{'' if count == 1 else 's'}"


def rows_of(
    queue: GangQueue, now: datetime, *, with_namespace: bool, wide: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Headers and cells; `wide` adds the figures of missing resources."""
    space = ["Namespace"] if with_namespace else []
    headers = ["Position", *space, "Gang", "Of", "Pods", "Priority", "Waits", *(["Missing"] if wide else []), "Message"]
    rows = [
        [
            str(gang.position or "-"),
            *([gang.namespace] if with_namespace else []),
            gang.gang,
            gang.owner,
            str(gang.pods),
            str(gang.priority),
            age(gang.since, now),
            *([_missing(gang.missing)] if wide else []),
            gang.message,
        ]
        for gang in queue.waiting
    ]
    return headers, rows


def request_rows(queue: GangQueue, *, with_namespace: bool) -> tuple[list[str], list[list[str]]]:
    """Headers and cells of what running gangs were asked to do."""
    space = ["Namespace"] if with_namespace else []
    rows = [
        [*([request.namespace] if with_namespace else []), request.gang, request.owner, request.change, request.reason]
        for request in queue.requests
    ]
    return [*space, "Gang", "Of", "Change", "Reason"], rows


def share_rows(queue: GangQueue) -> tuple[list[str], list[list[str]]]:
    """Headers and cells of what the gangs of each namespace hold; weights as far as the user may read them."""
    with_weights = any(share.weight is not None for share in queue.shares)
    rows = [
        [
            share.namespace,
            str(share.running),
            str(share.waiting),
            *([_number(share.weight)] if with_weights else []),
            share_text(share),
            held_text(share),
        ]
        for share in queue.shares
    ]
    return ["Namespace", "Running", "Waiting", *(["Weight"] if with_weights else []), "Share", "Held"], rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def holder_rows(waits: Waits, now: datetime) -> tuple[list[str], list[list[str]]]:
    """Headers and cells of who holds what each gang lacks, and when the gang may start."""
    rows = []
    for (namespace, name), wait in waits.items():
        gang = f"{namespace}/{name}"
        start = start_text(wait.start, now)
        for lack in wait.lacks:
            held = f"{lack.resource}: "
            rows += [
                [gang, f"{held}{holder.amount}", f"{holder.namespace}/{holder.job}", end_text(holder, now)]
                for holder in lack.holders
            ]
            if lack.more:
                rows.append([gang, held.rstrip(), f"{lack.more} more job{'' if lack.more == 1 else 's'}", ""])
            if lack.others:
                rows.append([gang, f"{held}{lack.others}", "pods of no job", ""])
            if wait.is_partial and not wait.is_quota:
                rows.append([gang, held.rstrip(), "others may hold the rest, which you may not see", ""])
        rows.append([gang, "", "(may start)", start])
    return ["Gang", "Holds", "By", "Ends"], rows


def _missing(missing: Sequence[Missing]) -> str:
    """Returns a text such as `12 cpu (4 of 16 usable)`: whole pods can use 4 of the 16 that are requested."""
    return ", ".join(_missing_of(resource) for resource in missing)


def _missing_of(missing: Missing) -> str:
    name, available = missing.resource, missing.available or "0"
    usable = f"({available} of {missing.requested} usable)"
    try:
        lacking = amount_from(name, missing.requested) - amount_from(name, available)
    except ValueError:  # a gang scheduler of another version
        return f"{name} {usable}"
    return f"{quantity_of(name, lacking)} {name} {usable}"


def show_queue(session: Session, parsed: Namespace) -> int:
    queue = read_queue(session.requester, session.scope, parsed.controller_namespace)
    now = server_now(session.requester)
    if is_for_programs(parsed.output):
        return print_value(queue, parsed.output)
    if queue.report is not None and (notice := queue.report.notice(now)):
        print_notice(session.aimed(notice))
    wide, screen, with_namespace = parsed.output == WIDE, Screen(), not session.scope
    with_headers = not parsed.no_headers
    if queue.waiting:
        screen.table(*rows_of(queue, now, with_namespace=with_namespace, wide=wide), with_headers=with_headers)
    if queue.requests:
        screen.heading("Requests to running gangs")
        screen.table(*request_rows(queue, with_namespace=with_namespace), with_headers=with_headers)
    if wide and queue.shares:
        screen.heading("Shares")
        screen.table(*share_rows(queue), with_headers=with_headers)
    if wide and queue.waiting:
        screen.heading("Who holds what waiting gangs lack")
        waits = read_waits(session.requester, session.scope, session.client.kinds(), now)
        screen.table(*holder_rows(waits, now), with_headers=with_headers)
    if not queue.waiting:
        print_notice(session.aimed(f"No gang waits; {summary(queue)}{report_origin(queue, now)}."))
    else:
        elsewhere = parsed.controller_namespace != SYSTEM_NAMESPACE
        flags = f" --controller-namespace={parsed.controller_namespace}" if elsewhere else ""
        why = f"kubectl tfjob describe NAME -n {session.scope or 'NAMESPACE'}{flags}"
        print_notice(session.aimed(f"{summary(queue)}{report_origin(queue, now)}; why one waits: {why}"))
    return 0
