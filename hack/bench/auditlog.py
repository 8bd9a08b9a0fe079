"""Counts requests with the API server's audit log."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Object = dict[str, Any]

_POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
_EVERYTHING: tuple[Object, ...] = ({"level": "Metadata"},)
# A request is logged once, after its response; a watch after its end.
_ONCE = ("RequestReceived", "ResponseStarted")


# In megabytes. Only one file is read, so the log must not be rotated.
_NEVER_ROTATED = 100_000


@contextlib.contextmanager
def audit_log(
    rules: Sequence[Object] = _EVERYTHING, omitted_stages: Sequence[str] = _ONCE
) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yields the path of the log, and the flags that make kube-apiserver write it."""
    with tempfile.TemporaryDirectory() as folder:
        policy, log = Path(folder) / "policy.json", Path(folder) / "audit.log"
        policy.write_text(json.dumps({**_POLICY, "rules": [*rules], "omitStages": [*omitted_stages]}))
        yield (
            log,
            (f"--audit-policy-file={policy}", f"--audit-log-path={log}", f"--audit-log-maxsize={_NEVER_ROTATED}"),
        )


def entries_of(log: Path, namespace: str) -> Iterator[Object]:
    """Yields the requests in that namespace, without watches and those for events."""
    for line in log.read_text().splitlines():
        entry: Object = json.loads(line)
        reference = entry.get("objectRef") or {}
        is_counted = entry["verb"] != "watch" and reference.get("resource") != "events"
        if is_counted and reference.get("namespace") == namespace:
            yield entry
