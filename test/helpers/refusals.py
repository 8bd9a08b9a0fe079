"""Cases of invalid jobs: what the API server says follows from what the controller says, for most of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from helpers.manifests import Manifest


@dataclass(frozen=True, slots=True)
class Bad:
    """`words` is the controller's message, `answers` has the API server's messages, one for each problem.

    Kubernetes compares numbers with their format only since 1.36; `without_formats` are the messages before, if they
    are others.
    """

    name: str
    manifest: Manifest
    words: str
    answers: tuple[str, ...]
    without_formats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """`refusal` is the message of both, empty if the change is allowed; `at` is the field of the error."""

    name: str
    before: Manifest
    after: Manifest
    refusal: str = ""
    at: str = ""
    started: bool = True


# The API server adds this message if the schema is violated, because it cannot evaluate the rules then.
SKIPPED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_TYPES = {"int": "integer", "str": "string", "float": "number"}


def bad(name: str, manifest: Manifest, words: str, error: str = "Invalid value") -> Bad:
    """Returns a case whose answers follow from `words`, which are a path and a message.

    `error` is the type of error, with the value if it is a text or a number, for a message that stands in the CRD.
    """
    at, message = re.fullmatch(r"(\S+): (.*)", words, re.DOTALL).groups()  # type: ignore[union-attr]
    for pattern, answers in _SCHEMA.items():
        if found := re.fullmatch(pattern, message):
            return Bad(name, manifest, words, answers(at, *found.groups()))
    return Bad(name, manifest, words, (f"{at}: {error}: {message}",))


def _out_of_range(at: str, low: str, high: str, given: str) -> tuple[str, ...]:
    limit = f"greater than or equal to {low}" if int(given) < int(low) else f"less than or equal to {high}"
    return (f"{at}: Invalid value: {given}: {at} in body should be {limit}",)


def _unsupported(at: str, values: str, given: str) -> tuple[str, ...]:
    supported = ", ".join(json.dumps(each) for each in values.split(", "))
    return f'{at}: Unsupported value: "{given}": supported values: {supported}', SKIPPED


def _of_another_type(at: str, expected: str, given: str) -> tuple[str, ...]:
    wanted = ",".join(_TYPES.get(each, each) for each in expected.split(" or "))
    found = _TYPES.get(given, given)
    return f'{at}: Invalid value: "{found}": {at} in body must be of type {wanted}: "{found}"', SKIPPED


# By the message of a violated schema, what the API server says.
_SCHEMA: dict[str, Callable[..., tuple[str, ...]]] = {
    r"must be from (-?\d+) to (\d+), is (-?\d+)": _out_of_range,
    r"must be one of (.*), is (\S+)": _unsupported,
    r"expected (.*), got (\w+)": _of_another_type,
    r"object missing required field (\w+)": lambda at, field: (f"{at}.{field}: Required value", SKIPPED),
    r"is required, as text|a name is required": lambda at: (f"{at}: Required value", SKIPPED),
}
