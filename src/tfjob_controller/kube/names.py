"""Names of objects and namespaces, by the rules of the API server. Only the standard library is imported.

Source: apimachinery pkg/api/validate/content/dns.go.
"""

from __future__ import annotations

import re

MAX_NAME, MAX_NAMESPACE = 253, 63
# The namespace of the default installation, by the manifests.
SYSTEM_NAMESPACE = "tfjob-system"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAME_PATTERN = rf"^{_LABEL}(\.{_LABEL})*$"
NAME_WORDS = "must be of lower-case letters, digits, - and . and begin and end with a letter or digit"
_NAMESPACE_WORDS = "must be of lower-case letters, digits and - and begin and end with a letter or digit"
_NAME, _NAMESPACE = re.compile(NAME_PATTERN[1:-1]), re.compile(_LABEL)


def name_violation(text: str) -> str:
    """Returns why a text cannot be the name of an object, for the end of a sentence; empty if it can."""
    return _violation(text, MAX_NAME, _NAME, NAME_WORDS)


def namespace_violation(text: str) -> str:
    """Returns why a text cannot be the name of a namespace, for the end of a sentence; empty if it can."""
    return _violation(text, MAX_NAMESPACE, _NAMESPACE, _NAMESPACE_WORDS)


def _violation(text: str, most: int, pattern: re.Pattern[str], rule: str) -> str:
    if len(text) > most:
        return f"must have at most {most} characters, has {len(text)}"
    return "" if pattern.fullmatch(text) else rule
