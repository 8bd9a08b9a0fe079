"""Identifies the piece of work that a request belongs to, from a program's log to the API server's audit log.

Theory of operation. Code that begins a piece of work (a worker, for one sync) runs it within `new_trace`, or creates a
`Trace` and runs it within `use_trace`. Every request that is sent within, including those of threads that run in a copy
of the context, carries the header `Audit-ID`: the trace's id and a number. The API server uses it as the `auditID` of
its audit event. So the id in a log line finds the requests in the audit log, and vice versa. Events carry the id as an
annotation.

An Audit-ID names one request, so each attempt has its own. Requests outside any piece of work (watches, leases) have
none, and the server assigns one.

Source: k8s.io/apiserver pkg/endpoints/filters/audit_init.go.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterator
from contextvars import ContextVar

AUDIT_ID_HEADER = "Audit-ID"
# On an Event: the sync in which it was last reported.
RECONCILE_ID_ANNOTATION = "kubeflow.org/reconcile-id"


class Trace:
    """One piece of work. Thread-safe. `id` has at most 50 characters, since the server echoes 64 of an Audit-ID."""

    __slots__ = ("_numbers", "id")

    def __init__(self, id_: str) -> None:
        self.id = id_
        self._numbers = itertools.count(1)

    def next_audit_id(self) -> str:
        """An Audit-ID that is unique if the trace's id is."""
        return f"{self.id}-{next(self._numbers)}"


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


def current() -> Trace | None:
    """The trace of the current context."""
    return _current.get()


@contextlib.contextmanager
def new_trace(key: str) -> Iterator[None]:
    """Run a piece of work about one object: its log lines have the object's `key` and a new `reconcile_id`."""
    import structlog  # commands have no syncs and start without it

    work = Trace(uuid.uuid4().hex)
    with structlog.contextvars.bound_contextvars(key=key, reconcile_id=work.id), use_trace(work):
        yield


@contextlib.contextmanager
def use_trace(trace: Trace | None) -> Iterator[None]:
    """Requests sent within belong to this piece of work; None: to no piece of work."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)
