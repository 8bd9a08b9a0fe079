"""Validates the storage settings of all kinds of jobs: URIs, the variables of containers, and checkpoints.

The CRDs have the same rules in CEL (hack/generate/storagerules.py, with the messages below). The limits of single
fields are declared with the fields (`common.storage`). All functions are pure and yield one sentence for each problem,
which begins with the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tfjob_controller.api.common.storage import INPUT_URI, LOGIN_IN_URI, OUTPUT_URI, Checkpoint

UNKNOWN_SOURCE = "must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and name a location"
UNKNOWN_TARGET = "must begin with s3://, hf://, gs://, file:/// or pvc:// and name a location"
URI_WITH_LOGIN = "must not contain a user or password: put them into a Secret and name it in secretRef"


def source_problems(uri: str, at: str) -> Iterator[str]:
    """Problems of a URI from which data is fetched."""
    return _uri_problems(uri, at, INPUT_URI, UNKNOWN_SOURCE)


def target_problems(uri: str, at: str) -> Iterator[str]:
    """Problems of a URI to which data is written."""
    return _uri_problems(uri, at, OUTPUT_URI, UNKNOWN_TARGET)


def _uri_problems(uri: str, at: str, allowed: str, otherwise: str) -> Iterator[str]:
    if not re.search(allowed, uri):
        yield f"{at}: {otherwise}"
    if re.search(LOGIN_IN_URI, uri):
        yield f"{at}: {URI_WITH_LOGIN}"


def env_problems(env: tuple[dict[str, Any], ...], at: str) -> Iterator[str]:
    """Problems of a container's variables."""
    yield from missing_texts(env, at, "name")
    names: set[object] = set()
    for index, variable in enumerate(env):
        if variable["name"] in names:
            yield f"{at}[{index}].name: {variable['name']} is listed twice: leave one of them out"
        if not isinstance(variable.get("value"), str | None):
            yield f"{at}[{index}].value: must be text: put it in quotation marks"
        if not isinstance(variable.get("valueFrom"), dict | None):
            yield f"{at}[{index}].valueFrom: expected an object"
        names.add(variable["name"])


def missing_texts(items: tuple[dict[str, Any], ...], at: str, *fields: str) -> Iterator[str]:
    """Entries without a required string. Callers rely on these fields only if there is no such problem."""
    for index, item in enumerate(items):
        for field in fields:
            if not isinstance(item.get(field), str) or not item[field]:
                yield f"{at}[{index}].{field}: is required, as text"


def checkpoint_problems(checkpoint: Checkpoint, at: str) -> Iterator[str]:
    yield from target_problems(checkpoint.storage_uri, f"{at}.storageUri")
    yield from env_problems(checkpoint.env, f"{at}.env")
