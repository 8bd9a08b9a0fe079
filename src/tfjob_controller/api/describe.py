"""Says beside each field of a kind what it means and what it may hold.

The CRD and the reference in docs/ are generated from these words (hack/generate), so there is one place to change. The
limits are not enforced on decoding: a value built in code is checked by nobody, one from the API by `validation`. But
decoding refuses what validation could not tell from an absent field: an empty text where the CRD allows none.
"""

from __future__ import annotations

from typing import Any

from msgspec import Meta

# The largest value of the API's int32 fields.
INT32_MAX = 2**31 - 1
# Beside a pattern: what a value that does not fit is told. Goes into no schema, but the CRD says it too.
IN_WORDS = "inWords"

# Limits to be spread into `says`. What most objects may be called (RFC 1123):
MAX_NAME = 253
A_NAME: dict[str, Any] = {
    "maxLength": MAX_NAME,
    "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    IN_WORDS: "must be of lower-case letters, digits, - and . and begin and end with a letter or digit",
}
# A framework, as spec.framework and an entry point name it.
A_FRAMEWORK: dict[str, Any] = {
    "maxLength": 63,
    "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$",
    IN_WORDS: "must be of lower-case letters, digits and -, begin with a letter and not end with -",
}
# A name that is nobody else's, since it begins with a domain.
A_PREFIXED_NAME: dict[str, Any] = {
    "maxLength": MAX_NAME,
    "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9][-A-Za-z0-9_./]*$",
    IN_WORDS: "must be a name with a domain in front, such as kueue.x-k8s.io/multikueue",
}

# The value of a label.
LABEL_VALUE = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
MAX_LABEL_VALUE = 63


def says(description: str, **schema: Any) -> Meta:
    """A field's description and, under JSON Schema's own names, its limits and its default on the server."""
    return Meta(description=description, extra_json_schema=schema or None, min_length=1 if "enum" in schema else None)
