"""Waits until a controller has processed all changes, by its debug pages instead of a time.

    changed = api.patch(path, {"metadata": {"labels": {"touched": "yes"}}})
    await_rest(manager, tfjobs=[changed])       # the cache of TFJobs holds that version; no key waits or is in work

Otherwise a test would have to sleep for a time that may be too short.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from typing import Any

from helpers.poll import eventually
from tfjob_controller.programs.manager import Manager

_QUEUES = ("queue", "trainjobs")

Object = dict[str, Any]


def await_rest(manager: Manager, **seen: Sequence[Object]) -> None:
    """Waits until the caches named by `seen` hold those versions of objects or later ones, and all queues are empty.

    Keys that are due later count as work, so the wait never ends for jobs with a deadline or a time to live. The
    manager must serve its debug pages.
    """
    versions = {
        cache: max((int(each["metadata"]["resourceVersion"]) for each in objects), default=0)
        for cache, objects in seen.items()
    }
    before: list[Object] = []

    def is_at_rest() -> bool:
        now = {name: _page(manager, name) for name in ("caches", *_QUEUES, "requests")}
        # A key moves from page to page, so only two equal reads in a row show that there is no key.
        is_same = before == [now]
        before[:] = [now]
        has_seen = all(now["caches"][cache]["resource_version"] >= version for cache, version in versions.items())
        pending = sum(handler["pending"] for cache in now["caches"].values() for handler in cache["handlers"])
        waiting = sum(now[name][field] for name in _QUEUES for field in ("queued", "processing", "delayed"))
        return is_same and has_seen and not pending and not waiting

    eventually(is_at_rest, period=0.05)


def _page(manager: Manager, name: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{manager.servers[0].port}/debug/{name}", timeout=30) as answer:
        return json.load(answer)
