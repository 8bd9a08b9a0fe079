"""`kubectl tfjob list`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tfjob_controller.kubectl.arguments import (
    JSON,
    NAME,
    TABLE,
    WIDE,
    YAML,
    CommandHandler,
    add_all_namespaces,
    add_cluster,
    add_kind,
    add_output,
)
from tfjob_controller.util.commandline import UsageError

if TYPE_CHECKING:
    from tfjob_controller.client.kinds import JobKind
    from tfjob_controller.client.reader import Reader
    from tfjob_controller.kubectl.jobtables import JobList
    from tfjob_controller.kubectl.session import Session

_LIST_EXAMPLES = """
kubectl tfjob list
kubectl tfjob list -A -o wide
kubectl tfjob list --kind trainjob -o name
kubectl tfjob list -l team=vision --watch
"""

_FoundT = TypeVar("_FoundT")


def _add_list_arguments(parser: ArgumentParser) -> None:
    add_all_namespaces(parser)
    add_kind(parser)
    parser.add_argument("-l", "--selector", default="", metavar="SELECTOR", help="those with these labels, such as a=b")
    parser.add_argument("-w", "--watch", action="store_true", help="after the table print a row for every change")
    add_output(parser, TABLE, WIDE, JSON, YAML, NAME)
    add_cluster(parser)


def _run_list(session: Session, parsed: Namespace) -> int:
    from tfjob_controller.kubectl.jobtables import JobList
    from tfjob_controller.kubectl.output import is_for_programs, print_value

    if parsed.watch and parsed.output not in (TABLE, WIDE):
        raise UsageError(f"--watch prints a table: leave out -o {parsed.output}")
    if is_for_programs(parsed.output):
        found = _of_each(session, parsed, lambda _, reader: reader.manifests())
        items = [item for each in found for item in each]
        return print_value({"apiVersion": "v1", "kind": "List", "items": items}, parsed.output)
    listed = _of_each(session, parsed, lambda kind, reader: JobList(kind, list(reader.tables())))
    if parsed.watch:
        return _watch(listed, session, parsed)
    listed = [each for each in listed if each.rows]
    return _print_names(listed) if parsed.output == NAME else _print_tables(listed, session, parsed)


def _of_each(session: Session, parsed: Namespace, read: Callable[[JobKind, Reader], _FoundT]) -> list[_FoundT]:
    """What `read` finds of each kind. A kind that is not installed has no jobs; without any there is no list."""
    from tfjob_controller.client.kinds import kinds_named
    from tfjob_controller.kube.errors import ApiError

    found: list[_FoundT] = []
    missing: list[ApiError] = []
    for kind in kinds_named(parsed.kind or None):
        try:
            found.append(read(kind, _reader(session, kind, parsed)))
        except ApiError as error:
            if not error.is_not_found:
                raise
            missing.append(error)
    if not found:
        raise missing[0]
    return found


def _reader(session: Session, kind: JobKind, parsed: Namespace) -> Reader:
    from tfjob_controller.client.reader import Reader

    return Reader(session.requester, session.scope, kind, parsed.selector)


def _watch(listed: Sequence[JobList], session: Session, parsed: Namespace) -> int:
    """Until Ctrl-C. The kinds are those that the cluster had at the start, also without a job."""
    import sys

    from tfjob_controller.client.listwatch import merge_rows, watch_rows
    from tfjob_controller.kubectl.jobtables import GrowingTable
    from tfjob_controller.kubectl.output import print_notice
    from tfjob_controller.util.clock import RealClock

    shown = GrowingTable(listed, with_namespace=not session.scope, wide=parsed.output == WIDE)
    print("\n".join(shown.lines()), flush=True)
    clock = RealClock()
    watches = [
        watch_rows(session.table_streams, _reader(session, each.kind, parsed), each.version, print_notice, clock)
        for each in listed
    ]
    for index, row in merge_rows(watches):
        print(shown.line(index, row))
        sys.stdout.flush()
    return 0


def _print_names(listed: Sequence[JobList]) -> int:
    """As `kubectl get -o name` does."""
    for each in listed:
        for row in each.rows:
            print(f"{each.kind.word}.{each.kind.resource.group}/{row.object.metadata.name}")
    return 0


def _print_tables(listed: Sequence[JobList], session: Session, parsed: Namespace) -> int:
    from tfjob_controller.kubectl.jobtables import rows_of
    from tfjob_controller.kubectl.output import Screen, print_notice

    if not listed:
        what = {"tfjob": "TFJobs", "trainjob": "TrainJobs"}.get(parsed.kind, "jobs")
        labelled = " with these labels" if parsed.selector else ""
        print_notice(f"No {what}{labelled} in {f'namespace {session.scope}' if session.scope else 'any namespace'}.")
        return 0
    Screen().table(*rows_of(listed, with_namespace=not session.scope, wide=parsed.output == WIDE))
    return 0


HANDLERS = {
    "list": CommandHandler(_LIST_EXAMPLES, _add_list_arguments, _run_list),
}
