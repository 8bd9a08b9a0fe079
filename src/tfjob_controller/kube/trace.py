"""Which piece of work a request belongs to: from the log of a program to the audit log of the API server.

Theory of operation. Code that begins a piece of work (a worker, for one sync) runs it within `new_trace`, or creates a
`Trace` and runs it within `use_trace`. Every request that is sent meanwhile, also by threads that run in a copy of the
context, carries the header `Audit-ID`, made of the trace's id and a number. The API server takes that as the `auditID`
of its audit event instead of a random one. So the id of a log line finds the requests in the audit log, and the other
way round. Events carry the id as an annotation.

An Audit-ID names one request, so each attempt has its own. Requests outside of any piece of work (watches, leases) send
none, and the server makes one up.

Source: k8s.io/apiserver pkg/endpoints/filters/audit_init.go.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterator
from contextvars import ContextVar

AUDIT_ID_HEADER = "Audit-ID"
# Of an Event: in which sync it was reported, the last time if it repeats.
RECONCILE_ID_ANNOTATION = "kubeflow.org/reconcile-id"


class Trace:
    """One piece of work. Thread-safe. `id` has at most 50 characters: the server echoes 64 of an Audit-ID."""

    __slots__ = ("_numbers", "id")

    def __init__(self, id_: str) -> None:
        self.id = id_
        self._numbers = itertools.count(1)

    def next_audit_id(self) -> str:
        """Unique, as long as the id is."""
        return f"{self.id}-{next(self._numbers)}"


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


def current() -> Trace | None:
    """That of the work which is done in this context."""
    return _current.get()


@contextlib.contextmanager
def new_trace(key: str) -> Iterator[None]:
    """A piece of work that is about one object begins: log lines have its `key` and a new `reconcile_id`."""
    import structlog  # what only reads has no syncs, and starts without it

    work = Trace(uuid.uuid4().hex)
    with structlog.contextvars.bound_contextvars(key=key, reconcile_id=work.id), use_trace(work):
        yield


@contextlib.contextmanager
def use_trace(trace: Trace | None) -> Iterator[None]:
    """What is sent within belongs to this piece of work; None: to none."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)
