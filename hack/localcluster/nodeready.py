"""Waiting until nodes take pods, as the API server sees it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import urllib3

from localcluster.api import Api, RefusedError
from localcluster.errors import LocalClusterError

_POLL_SECONDS = 0.1


def wait(api: Api, names: Iterable[str], since: datetime, timeout_seconds: float) -> None:
    """Until all these nodes are Ready by a report made after `since`. Raises LocalClusterError with who is not."""
    wanted, deadline = set(names), time.monotonic() + timeout_seconds
    while missing := wanted - {node["metadata"]["name"] for node in _nodes(api) if is_ready(node, since)}:
        if time.monotonic() > deadline:
            raise LocalClusterError(f"{', '.join(sorted(missing))} not ready after {timeout_seconds:.0f} s")
        time.sleep(_POLL_SECONDS)


def is_ready(node: dict[str, Any], since: datetime) -> bool:
    """Takes pods: it said so itself, and the controller's taint, which goes a moment later, has gone.

    A report from before `since` (the API has whole seconds) may be that of a node which has died in the meantime.
    """
    taints = node["spec"].get("taints", ())
    reports = [
        one for one in node["status"].get("conditions", ()) if one["type"] == "Ready" and one["status"] == "True"
    ]
    fresh = any(datetime.fromisoformat(one["lastHeartbeatTime"]) >= since.replace(microsecond=0) for one in reports)
    return fresh and not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)


def _nodes(api: Api) -> list[dict[str, Any]]:
    try:
        return api.list("/api/v1/nodes")
    except (RefusedError, urllib3.exceptions.HTTPError):  # passing: it has just been started, and is busy
        return []
