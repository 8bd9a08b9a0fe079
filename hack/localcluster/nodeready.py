"""Waits until nodes are ready for pods according to the API server."""

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
    """Waits until all these nodes have reported Ready after `since`. Raises LocalClusterError that names the others."""
    wanted, deadline = set(names), time.monotonic() + timeout_seconds
    while missing := wanted - {node["metadata"]["name"] for node in _nodes(api) if is_ready(node, since)}:
        if time.monotonic() > deadline:
            raise LocalClusterError(f"{', '.join(sorted(missing))} not ready after {timeout_seconds:.0f} s")
        time.sleep(_POLL_SECONDS)


def is_ready(node: dict[str, Any], since: datetime) -> bool:
    """Reports whether the node is Ready and the node controller has removed its taint, which happens a little later.

    A condition from before `since` (the API has whole seconds) may be that of a node that has died since.
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
    except (RefusedError, urllib3.exceptions.HTTPError):  # temporary: the node has just been started
        return []
