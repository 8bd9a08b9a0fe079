"""Waits until nodes are ready for pods according to the API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import urllib3

from localcluster.api import Api, RefusedError
from localcluster.errors import LocalClusterError

_POLL_SECONDS = 0.1


class NotReadyError(LocalClusterError):
    """The names of nodes that are not ready, each with the reason."""

    def __init__(self, reasons: dict[str, str], when: str = "") -> None:
        shown = ", ".join(f"{name} ({reason})" for name, reason in sorted(reasons.items()))
        super().__init__(f"not ready{when}: {shown}")
        self.names = sorted(reasons)


def wait(
    api: Api, names: Iterable[str], since: datetime, timeout_seconds: float, is_alive: Callable[[str], bool]
) -> None:
    """Waits until all these nodes have reported Ready after `since`.

    Raises NotReadyError with those that have not after `timeout_seconds`, or as soon as one is not alive.
    """
    wanted, deadline = sorted(names), time.monotonic() + timeout_seconds
    while True:
        nodes = {node["metadata"]["name"]: node for node in _nodes(api)}
        missing = [name for name in wanted if name not in nodes or not is_ready(nodes[name], since)]
        if not missing:
            return
        if dead := [name for name in missing if not is_alive(name)]:
            raise NotReadyError(dict.fromkeys(dead, "its first program has ended"))
        if time.monotonic() > deadline:
            reasons = {name: _reason(nodes.get(name), since) for name in missing}
            raise NotReadyError(reasons, f" after {timeout_seconds:.0f} s")
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


def _reason(node: dict[str, Any] | None, since: datetime) -> str:
    if node is None:
        return "its kubelet has not registered it"
    taints = [taint["key"] for taint in node["spec"].get("taints", ())]
    ready: dict[str, str] = next((one for one in node["status"].get("conditions", ()) if one["type"] == "Ready"), {})
    at = ready.get("lastHeartbeatTime")
    report = f"Ready is {ready.get('status', 'not reported')} at {at}, started at {since:%H:%M:%S}"
    return "; ".join([report, *filter(None, [ready.get("message"), *taints])])


def _nodes(api: Api) -> list[dict[str, Any]]:
    try:
        return api.list("/api/v1/nodes")
    except (RefusedError, urllib3.exceptions.HTTPError):  # temporary: the node has just been started
        return []
