"""What `/debug/` shows: queue, caches, threads. On loopback only, and off unless asked for."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from tfjob_controller.telemetry.health import Answer, Route, text

JSON = "application/json"


def routes(pages: Mapping[str, Callable[[], Any]]) -> dict[str, Route]:
    """`/debug/threads`, one page of JSON for each of `pages` (by name), and `/debug/` that lists them."""
    made: dict[str, Route] = {f"/debug/{name}": _page(content) for name, content in pages.items()}
    made["/debug/threads"] = lambda _: text(thread_stacks())
    listing = "".join(f"{path}\n" for path in sorted(made))
    made["/debug/"] = lambda _: text(listing)
    return made


def thread_stacks() -> str:
    """Where every thread is just now."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sorted(sys._current_frames().items()):
        parts.append(f"{names.get(ident, 'unknown')} ({ident})\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


def _page(content: Callable[[], Any]) -> Route:
    def answer(_: str) -> Answer:
        return Answer(json.dumps(content(), default=_plain, indent=1).encode() + b"\n", content_type=JSON)

    return answer


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
