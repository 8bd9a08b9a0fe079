"""`kubectl tfjob list`: the jobs of several kinds as `kubectl get` shows them."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tfjob_controller.client.discovery import explained, is_left_out
from tfjob_controller.client.kinds import OWN_KINDS, kinds_named
from tfjob_controller.client.reader import Reader
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kubectl.argumenttypes import JobName
from tfjob_controller.kubectl.command import NAME, TABLE, WIDE, is_of_kubectl
from tfjob_controller.kubectl.commands.jobtable import GrowingTable, JobList, TableLayout, rows_of, sorted_rows
from tfjob_controller.kubectl.fieldpath import FieldPath, order_of
from tfjob_controller.kubectl.output import Screen, is_for_programs, print_error, print_notice, print_value
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.commandline import UsageError
from tfjob_controller.util.exitcodes import EXIT_FAILED
from tfjob_controller.util.terminal import print_line

_ReadT = TypeVar("_ReadT")
# The fields of all objects that columns show.
_FIELDS = {"name": ".metadata.name", "namespace": ".metadata.namespace", "age": ".metadata.creationTimestamp"}


def list_jobs(session: Session, parsed: Namespace) -> int:
    if parsed.history is not None:
        from tfjob_controller.kubectl.commands.history import list_history

        return list_history(session, parsed)
    _check_flags(session, parsed)
    order = order_of(parsed.sort_by) if parsed.sort_by else ""
    if is_for_programs(parsed.output):
        return _print_objects(session, parsed, order)
    tables = [
        JobList(kind, pages)
        for kind, pages in _read(session, parsed, lambda reader: list(reader.tables(with_objects=bool(order))))
    ]
    layout = TableLayout(not session.scope, parsed.output == WIDE, parsed.show_labels, order)
    names = {(table.kind.word, row.object.metadata.name) for table in tables for row in table.rows}
    code = _print_missing(session, parsed, names)
    if parsed.watch:
        return code or _watch(tables, session, parsed, layout)
    tables = [table for table in tables if table.rows]
    if parsed.output == NAME:
        _print_names(tables, order)
    elif tables:
        Screen().table(*rows_of(tables, layout), with_headers=not parsed.no_headers)
    elif not parsed.names:
        _print_none(session, parsed)
    return code


def _check_flags(session: Session, parsed: Namespace) -> None:
    """Raises `UsageError` for flags that exclude each other, and for the formats of kubectl."""
    is_kubectls = is_of_kubectl(parsed.output)
    if parsed.watch and not is_kubectls and parsed.output not in (TABLE, WIDE):
        raise UsageError(f"--watch prints a table: leave out -o {parsed.output}")
    if parsed.watch and parsed.sort_by:
        raise UsageError("--watch prints changes as they come: leave out --sort-by")
    if parsed.watch and len(parsed.names) > 1:
        raise UsageError("--watch takes one NAME, or none")
    if other := next((name for name in parsed.names if parsed.kind and name.kind not in ("", parsed.kind)), None):
        raise UsageError(f"{other} is no {parsed.kind}: leave out --kind or the name")
    if parsed.names and (parsed.selector or parsed.field_selector):
        raise UsageError("a NAME and a selector exclude each other: leave one of them out")
    if is_kubectls:
        commands = " or ".join(f"`{session.aimed(command)}`" for command in _kubectl_commands(parsed))
        raise UsageError(f"{_of_kubectl(parsed)}: run {commands}")


def _of_kubectl(parsed: Namespace) -> str:
    return f"-o {parsed.output.partition('=')[0]} is a format of kubectl get"


def _kubectl_commands(parsed: Namespace) -> list[str]:
    """The command lines of kubectl for the same jobs in the same format: one for each kind that a NAME alone may be of.

    Raises `UsageError` if there is none. Source: kubectl pkg/cmd/get/get.go (Validate, watch), sorter.go.
    """
    flags = _kubectl_flags(parsed)
    return [" ".join(["kubectl get", *objects, *flags]) for objects in _kubectl_objects(parsed)]


def _kubectl_flags(parsed: Namespace) -> list[str]:
    values = {
        "-n": parsed.namespace,
        "-l": parsed.selector,
        "--field-selector": parsed.field_selector,
        "--sort-by": _kubectl_order(parsed.sort_by),
        "-o": parsed.output,
    }
    flags = ["-A"] if parsed.all_namespaces else []
    flags += [f"{flag} {shlex.quote(value)}" for flag, value in values.items() if value]
    # Labels are a column of tables alone.
    switches = ("watch", "no_headers")
    return flags + [f"--{name.replace('_', '-')}" for name in switches if getattr(parsed, name)]


def _kubectl_objects(parsed: Namespace) -> Sequence[Sequence[str]]:
    """The kinds, and the names; with names kubectl takes one kind, or names the kind of each.

    Without a kind these are the kinds of this project, since kubectl refuses a kind that the cluster lacks.
    """
    named = kinds_named(parsed.kind) if parsed.kind else OWN_KINDS
    kinds = list(dict.fromkeys(kind.resource.full_name for kind in named))
    if len(kinds) > 1 and parsed.watch and not parsed.names:
        raise UsageError(f"{_of_kubectl(parsed)}, whose --watch takes one kind: add --kind")
    if len(kinds) == 1 or not parsed.names:
        return [[",".join(kinds), *(name.name for name in parsed.names)]]
    given = [kinds_named(name.kind)[0].resource.full_name if name.kind else "" for name in parsed.names]
    chosen = [[kind or other for kind in given] for other in kinds] if "" in given else [given]
    return [[f"{kind}/{name.name}" for kind, name in zip(each, parsed.names, strict=True)] for each in chosen]


def _kubectl_order(order: str) -> str:
    """The field in which kubectl finds what a column shows. Raises `UsageError` for other columns."""
    field = _FIELDS.get(order.lower(), order)
    if field and "." not in field:
        raise _no_columns(order)
    return field


def _no_columns(order: str) -> UsageError:
    return UsageError(f"--sort-by {order}: objects have no columns: name a field such as .metadata.name")


def _print_objects(session: Session, parsed: Namespace, order: FieldPath | str) -> int:
    if order and not isinstance(order, FieldPath):
        raise _no_columns(order)
    items: list[dict[str, Any]] = []
    names: set[tuple[str, str]] = set()
    for kind, manifests in _read(session, parsed, lambda reader: reader.manifests()):
        items += manifests
        names |= {(kind.word, manifest["metadata"]["name"]) for manifest in manifests}
    if isinstance(order, FieldPath):
        items = [item for item, _ in order.sorted((item, None) for item in items)]
    code = _print_missing(session, parsed, names)
    print_value({"apiVersion": "v1", "kind": "List", "items": items}, parsed.output)
    return code


def _read(
    session: Session, parsed: Namespace, read: Callable[[Reader], list[_ReadT]]
) -> list[tuple[ClientKind, list[_ReadT]]]:
    """Returns what `read` returns, for each kind.

    Kinds that are not installed, or that the user may not list, are left out, unless these are all.
    """
    results: list[tuple[ClientKind, list[_ReadT]]] = []
    refusals: list[tuple[ClientKind, ApiError]] = []
    for kind in session.client.kinds(parsed.kind or None):
        if parsed.kind and results:  # a cluster serves one API of a kind
            break
        if not (readers := list(_readers(session, kind, parsed))):
            continue
        try:
            results.append((kind, [item for reader in readers for item in read(reader)]))
        except ApiError as error:
            if not is_left_out(error):
                raise
            refusals.append((kind, error))
    if refusals and not results:
        raise explained(*min(refusals, key=lambda refusal: not refusal[1].is_forbidden))
    return results


def _readers(session: Session, kind: ClientKind, parsed: Namespace) -> Iterator[Reader]:
    """One reader of all jobs, or one for each name: a list of one name needs no other right than a list of all."""
    names: list[JobName] = [name for name in parsed.names if name.kind in ("", kind.word)]
    fields = [f"metadata.name={name.name}" for name in names] if parsed.names else [parsed.field_selector]
    for field_selector in fields:
        yield Reader(session.requester, session.scope, kind, parsed.selector, field_selector)


def _print_missing(session: Session, parsed: Namespace, names: set[tuple[str, str]]) -> int:
    """Names the jobs that do not exist on standard error. Returns the exit code."""
    missing = [
        name for name in parsed.names if not any(name.name == job and name.kind in ("", kind) for kind, job in names)
    ]
    for name in missing:
        problem = f"there is no job {name} in {session.scope_text}"
        print_error(session.aimed(f"{problem}: {session.listing} shows those that exist"))
    return EXIT_FAILED if missing else 0


def _watch(tables: Sequence[JobList], session: Session, parsed: Namespace, layout: TableLayout) -> int:
    """Prints changes until Ctrl-C, of the kinds that the cluster had at the start, also of those without a job."""
    from tfjob_controller.client.listwatch import merge_rows, watch_rows
    from tfjob_controller.util.clock import RealClock

    table = GrowingTable(tables, layout)
    for line in table.lines()[1 if parsed.no_headers else 0 :]:
        print_line(line, flush=True)
    clock = RealClock()
    watches = [
        watch_rows(session.requester, reader, of_kind.version, print_notice, clock)
        for of_kind in tables
        for reader in _readers(session, of_kind.kind, parsed)
    ]
    for index, row in merge_rows(watches):
        print_line(table.line(index, row), flush=True)
    return 0


def _print_names(tables: Sequence[JobList], order: FieldPath | str) -> None:
    """Prints what `kubectl get -o name` does."""
    for table, row in sorted_rows(tables, order):
        print_line(f"{table.kind.word}.{table.kind.resource.group}/{row.object.metadata.name}")


def _print_none(session: Session, parsed: Namespace) -> None:
    what = f"{kinds_named(parsed.kind)[0].resource.kind}s" if parsed.kind else "jobs"
    selected = " with these labels" if parsed.selector else ""
    selected += " with these fields" if parsed.field_selector else ""
    print_notice(f"No {what}{selected} in {session.scope_text}.")
