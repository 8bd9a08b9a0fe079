"""The manifest of a job as text: YAML, or the beginning of its JSON where YAML would cost too much.

The API server accepts 1.5 MB for an object. As many empty mappings take hundreds of megabytes as Python values, and
minutes as YAML; the bytes are therefore counted before they are decoded.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from tfjob_controller.client.kinds import Snapshot
from tfjob_controller.kube import nesting
from tfjob_controller.util.yamlengine import safe_dumper

MAX_BYTES, MAX_VALUES = 200_000, 20_000
_CUT_BYTES = 50_000


def manifest_text(snapshot: Snapshot) -> str:
    """The object without managedFields."""
    return text_of(_without_managed_fields(snapshot.body))


def text_of(body: bytes) -> str:
    """The JSON of an object as text; of what cannot be decoded, such as a number of any size, why."""
    if is_large(body):
        beginning = body[:_CUT_BYTES].decode("utf-8", "ignore")
        return (
            f"# The first {_CUT_BYTES} of {len(body)} bytes, as JSON: the rest is too large to be shown.\n{beginning}"
        )
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return f"# The manifest cannot be shown: {error}\n"
    return str(yaml.dump(value, Dumper=safe_dumper(), sort_keys=False))


def is_large(body: bytes) -> bool:
    """Whether JSON is not decoded here."""
    return len(body) > MAX_BYTES or nesting.has_more_values(body, MAX_VALUES) or nesting.is_too_deep(body)


def small_manifest(snapshot: Snapshot) -> dict[str, Any] | None:
    """A copy of the object without managedFields; None if it is large."""
    body = _without_managed_fields(snapshot.body)
    return None if is_large(body) else msgspec.json.decode(body)


def _without_managed_fields(body: bytes) -> bytes:
    """The same JSON, in which only fields of the object and of its metadata become values."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    metadata = msgspec.json.decode(fields.get("metadata", b"{}"), type=dict[str, msgspec.Raw])
    metadata.pop("managedFields", None)
    fields["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    return msgspec.json.encode(fields)
