"""kube-apiserver's audit log: the flags that make it write one, and its entries.

Source: https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Object = dict[str, Any]

_EVERYTHING: tuple[Object, ...] = ({"level": "Metadata"},)
# A request is logged once, after its response; a watch after its end.
_ONCE = ("RequestReceived", "ResponseStarted")
# In megabytes. Only one file is read, so the log must not be rotated.
_NEVER_ROTATED = 100_000


@contextmanager
def audit_log(
    rules: Sequence[Object] = _EVERYTHING, omitted_stages: Sequence[str] = _ONCE
) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yields the path of the log, and the flags that make kube-apiserver write it."""
    with tempfile.TemporaryDirectory() as folder:
        policy, log = Path(folder) / "policy.json", Path(folder) / "audit.log"
        kind = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
        policy.write_text(json.dumps({**kind, "rules": [*rules], "omitStages": [*omitted_stages]}))
        size = f"--audit-log-maxsize={_NEVER_ROTATED}"
        yield log, (f"--audit-policy-file={policy}", f"--audit-log-path={log}", size)


def json_lines(log: Path, offset: int = 0) -> Iterator[Object]:
    """Yields the objects of a log with one JSON object a line, except a line that is still being written.

    `offset` is where a line begins.
    """
    for line in log.read_bytes()[offset:].splitlines(keepends=True) if log.exists() else ():
        if line.endswith(b"\n"):
            yield json.loads(line)
