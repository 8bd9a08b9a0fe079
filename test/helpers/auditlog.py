"""The rights that an account has used, from kube-apiserver's audit log."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from helpers.rights import Right
from localcluster.auditlog import audit_log, json_lines

Object = dict[str, Any]


def rights_log(account: str) -> AbstractContextManager[tuple[Path, tuple[str, ...]]]:
    """Returns a log of the requests of one account, and kube-apiserver's flags. Watches are in it when they begin."""
    rules: list[Object] = [{"level": "Metadata", "users": [account]}, {"level": "None"}]
    return audit_log(rules, omitted_stages=("RequestReceived",))


def used_rights(log: Path) -> set[Right]:
    """Returns each right that has allowed a request."""
    return {_right_of(event) for event in json_lines(log) if "objectRef" in event and _is_allowed(event)}


def _is_allowed(event: Object) -> bool:
    return bool(event.get("annotations", {}).get("authorization.k8s.io/decision") == "allow")


def _right_of(event: Object) -> Right:
    reference = event["objectRef"]
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    return Right(reference.get("apiGroup", ""), resource, event["verb"])
