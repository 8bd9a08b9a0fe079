"""The rights that an account has used, from kube-apiserver's audit log (bench.auditlog configures it).

Source: https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bench.auditlog import audit_log
from helpers.rights import Right

Object = dict[str, Any]


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
