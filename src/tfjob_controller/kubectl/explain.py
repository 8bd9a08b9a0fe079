"""`kubectl tfjob explain`: what happened to a job, in order, where it stands, and what would change that."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from tfjob_controller.kubectl.arguments import JSON, TABLE, YAML, add_cluster, add_job, add_output, dns_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_controller.kubectl.casefile import CaseFile
    from tfjob_controller.kubectl.session import Session
    from tfjob_controller.kubectl.timeline import Entry
    from tfjob_controller.kubectl.verdict import Verdict

EXAMPLES = """
kubectl tfjob explain train
kubectl tfjob explain trainjob/finetune --controller-logs
kubectl tfjob explain train -o json
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument(
        "--controller-logs",
        action="store_true",
        help="also the controller's log lines about the job, with their reconcile ids",
    )
    parser.add_argument(
        "--controller-namespace",
        type=lambda text: dns_name(text, "a namespace"),
        default="tfjob-system",
        metavar="NAME",
        help="where the controller runs; default: tfjob-system",
    )
    add_output(parser, TABLE, JSON, YAML)
    add_cluster(parser)


def run(session: Session, parsed: Namespace) -> int:
    from tfjob_controller.kubectl.casefile import read_case
    from tfjob_controller.kubectl.output import is_for_programs, print_value, say, screen
    from tfjob_controller.kubectl.timeline import in_order, timeline
    from tfjob_controller.kubectl.verdict import verdict

    case = read_case(session.requester, session.job(parsed.job).snapshot)
    entries, found = timeline(case), verdict(case)
    if parsed.controller_logs:
        from tfjob_controller.kubectl.controllerlogs import read_controller_logs

        logs = read_controller_logs(session.requester, case, parsed.controller_namespace)
        entries = in_order([*entries, *logs])
    if is_for_programs(parsed.output):
        return print_value(_value(case, entries, found), parsed.output)
    _print(screen(), entries, found)
    for line in case.unread:
        say(f"not read: {line}")
    return 0


def _value(case: CaseFile, entries: Sequence[Entry], found: Verdict) -> dict[str, Any]:
    meta = case.seen.metadata
    return {
        "kind": case.seen.kind.resource.kind,
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "timeline": entries,
        "now": found.now,
        "next": found.next,
        "unread": case.unread,
    }


def _print(screen: Any, entries: Sequence[Entry], found: Verdict) -> None:
    from tfjob_controller.kubectl.folding import folded

    with_ids = any(entry.reconcile_id and entry.kind == "log" for entry in entries)
    headers = ["Time", "Replica", "Source", *(["Reconcile-id"] if with_ids else []), "What"]
    rows = [
        [entry.time[:19] + "Z", entry.replica, entry.source, *([entry.reconcile_id] if with_ids else []), _what(entry)]
        for entry in folded(entries, keep_reconciles_apart=with_ids)
    ]
    screen.table(headers, rows)
    screen.heading(f"now: {found.now}")
    screen.line(f"next: {found.next}")


def _what(entry: Entry) -> str:
    warning = "! " if entry.is_warning else ""
    repeats = f" ({entry.count}x until {entry.last_time[:19]}Z)" if entry.count > 1 else ""
    return f"{warning}{entry.text}{repeats}"
