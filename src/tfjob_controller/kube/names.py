"""Names of objects, namespaces and images, by the rules of Kubernetes. Only the standard library is imported.

Source: apimachinery pkg/api/validate/content/dns.go; github.com/distribution/reference regexp.go and reference.go.
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

# The length of the name without tag and digest.
_MAX_IMAGE = 255
_DOMAIN_PART = "[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?"
_DOMAIN = rf"({_DOMAIN_PART}(\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(:[0-9]+)?"
_PATH_PART = "[a-z0-9]+((\\.|_|__|-+)[a-z0-9]+)*"
_TAG, _DIGEST = (
    r"[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}",
    "[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}",
)
_IMAGE = re.compile(rf"(?P<name>({_DOMAIN}/)?{_PATH_PART}(/{_PATH_PART})*)(:{_TAG})?(@{_DIGEST})?")
_IMAGE_WORDS = "must be [REGISTRY/]REPOSITORY[:TAG] without spaces, and the repository in lower case"


def name_violation(text: str) -> str:
    """Returns why a text cannot be the name of an object, for the end of a sentence; empty if it can."""
    return _violation(text, MAX_NAME, _NAME, NAME_WORDS)


def namespace_violation(text: str) -> str:
    """Returns why a text cannot be the name of a namespace, for the end of a sentence; empty if it can."""
    return _violation(text, MAX_NAMESPACE, _NAMESPACE, _NAMESPACE_WORDS)


def image_violation(text: str) -> str:
    """Returns why a text cannot be the reference of an image, for the end of a sentence; empty if it can."""
    match = _IMAGE.fullmatch(text)
    return "" if match is not None and len(match["name"]) <= _MAX_IMAGE else _IMAGE_WORDS


def _violation(text: str, most: int, pattern: re.Pattern[str], rule: str) -> str:
    if len(text) > most:
        return f"must have at most {most} characters, has {len(text)}"
    return "" if pattern.fullmatch(text) else rule
