"""Looks at a manifest before it goes to the API server, which would say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tfjob_controller.api.tfjob import TFJob
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.kinds import AnyJob, Kind, kind_of_manifest


def checked(manifest: Mapping[str, Any], namespace: str) -> tuple[Kind, str, bytes]:
    """Its kind, where it goes, and the body to send. Raises `ClientError` for what cannot be run."""
    kind = kind_of_manifest(manifest)
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise ClientError("metadata.name: is required: give the job a name")
    where = metadata.get("namespace") or namespace
    try:
        body = msgspec.json.encode({**manifest, "metadata": {**metadata, "namespace": where}})
    except (TypeError, ValueError) as error:
        raise ClientError(f"the manifest holds what JSON does not know: {error}") from None
    try:
        job = kind.decode(body)
    except msgspec.MsgspecError as error:
        raise ClientError(f"this is no {kind.resource.kind}: {error}") from None
    if (problem := problem_of(job)) is not None:
        raise ClientError(problem)
    return kind, where, body


def problem_of(job: AnyJob) -> str | None:
    """The first thing that is wrong with it, in the server's words."""
    if isinstance(job, TFJob):
        from tfjob_controller.api.validation import validate

        return validate(job)
    from tfjob_controller.api.trainjobvalidation import validate as validate_trainjob

    return validate_trainjob(job)
