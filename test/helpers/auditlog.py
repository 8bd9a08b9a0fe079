"""kube-apiserver's audit log, and the rights that an account has used, from it.

Source: https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from helpers.rights import Right

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


def rights_log(account: str) -> AbstractContextManager[tuple[Path, tuple[str, ...]]]:
    """Returns a log of the requests of one account, and kube-apiserver's flags. Watches are in it when they begin."""
    rules: list[Object] = [{"level": "Metadata", "users": [account]}, {"level": "None"}]
    return audit_log(rules, omitted_stages=("RequestReceived",))


def json_lines(log: Path) -> Iterator[Object]:
    """Yields the objects of a log with one JSON object a line, except a line that is still being written."""
    for line in log.read_bytes().splitlines(keepends=True) if log.exists() else ():
        if line.endswith(b"\n"):
            yield json.loads(line)


def used_rights(log: Path) -> set[Right]:
    """Returns each right that has allowed a request."""
    return {_right_of(event) for event in json_lines(log) if "objectRef" in event and _is_allowed(event)}


def _is_allowed(event: Object) -> bool:
    return bool(event.get("annotations", {}).get("authorization.k8s.io/decision") == "allow")


def _right_of(event: Object) -> Right:
    reference = event["objectRef"]
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    return Right(reference.get("apiGroup", ""), resource, event["verb"])
