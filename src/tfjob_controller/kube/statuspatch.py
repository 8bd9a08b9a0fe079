"""The smallest merge patch that turns one status into another (RFC 7386)."""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]


def status_patch(old: msgspec.Struct, new: msgspec.Struct, resource_version: str) -> Json:
    """Only what differs, and only if nobody has written since `resource_version`: else the server says 409."""
    changes = merge_patch(msgspec.to_builtins(old), msgspec.to_builtins(new))
    return {"metadata": {"resourceVersion": resource_version}, "status": changes}


def merge_patch(old: Json, new: Json) -> Json:
    """What has to be sent: objects are compared field by field, everything else as a whole; null removes."""
    patch: Json = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = merge_patch(before, value)
            if inner:
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = value
    return patch
