"""Which job a text of a browser names. Its parts become parts of paths of the API server."""

from __future__ import annotations

from dataclasses import dataclass

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.kinds import kinds_named
from tfjob_controller.kube.names import name_violation, namespace_violation

_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True)
class JobReference:
    """A job by valid names. `kind` is the word of its kind, in lower case and singular."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


def job_reference(text: str) -> JobReference:
    """Reads `KIND/NAMESPACE/NAME`. Raises `ClientError`."""
    parts = text.split("/")
    problem = f"{text[:_MAX_SHOWN]!r} does not name a job"
    if len(parts) != 3:
        raise ClientError(f"{problem}: use KIND/NAMESPACE/NAME, such as trainjob/default/train")
    kind, namespace, name = parts
    if violation := namespace_violation(namespace):
        raise ClientError(f"{problem}: its namespace {violation}")
    if violation := name_violation(name):
        raise ClientError(f"{problem}: its name {violation}")
    return JobReference(kinds_named(kind)[0].word, namespace, name)
