"""The fields of the form for a new job, and how they are read from a manifest and written into one.

Writing changes a field of the manifest only if the form's value differs from the value that is read from it, so that
all other fields survive. The `kindform` module of each kind reads and writes the fields that differ between kinds.
For kinds without such a module the form has name and namespace alone, and the rest is written as YAML.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tfjob_controller.api.common.record import RECORD_ANNOTATION
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.kinds import KINDS, kind_of_manifest
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kinds.kindform import (
    FormError,
    FormField,
    KindForm,
    Manifest,
    mapping_at,
    scalar,
    section_at,
    string_at,
)
from tfjob_controller.kinds.podform import ClaimMount, Gpus, Variable

_MAX_VALUES, _MAX_DEPTH = 20_000, 60
_MAX_NUMBER = 2**63 - 1


def _yaml_kind(kind: ClientKind) -> str:
    return f"{kind.resource.kind} of {kind.resource.api_version}"


# By kind.
FORMS: Mapping[str, KindForm] = {kind.resource.kind: kind.form() for kind in KINDS if kind.form is not None}
FORM_KINDS: Mapping[str, ClientKind] = {kind.resource.kind: kind for kind in KINDS if kind.form is not None}
# The other kinds, as the form names them: two kinds may have one name.
YAML_KINDS = tuple(_yaml_kind(kind) for kind in KINDS if kind.form is None)
# The kind of an empty form: the newest one, which the list of kinds has last.
DEFAULT_KIND = [*FORMS][-1]


# The fields of jobs of all kinds.
COMMON_FIELDS = ("kind", "name", "namespace")


@dataclass(frozen=True, slots=True)
class JobForm:
    """What the form shows. Empty strings, tuples and None stand for fields that the manifest does not have.

    `nodes` is the number of workers of a TFJob. CPU, memory and GPUs are those of each node (each master and worker),
    `minimum` and `maximum` the elastic bounds, and times are in seconds. `other_env` and `other_volumes` describe what
    the form keeps and does not change.
    """

    kind: str
    name: str = ""
    namespace: str = ""
    runtime: str = ""
    framework: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    nodes: int | None = None
    cpu: str = ""
    memory: str = ""
    gpus: Gpus | None = None
    shared_memory: str = ""
    env: tuple[Variable, ...] = ()
    other_env: tuple[str, ...] = field(default=(), compare=False)
    volumes: tuple[ClaimMount, ...] = ()
    other_volumes: tuple[str, ...] = field(default=(), compare=False)
    dataset: str = ""
    dataset_secret: str = ""
    model: str = ""
    model_secret: str = ""
    output: str = ""
    output_secret: str = ""
    checkpoint: str = ""
    checkpoint_secret: str = ""
    keep: int | None = None
    gang: bool | None = None
    gang_timeout: int | None = None
    priority: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    restarts: int | None = None
    deadline: int | None = None
    ttl: int | None = None

    @staticmethod
    def from_manifest(manifest: Mapping[str, Any]) -> JobForm:
        """Raises `FormError` for a kind that is not a job's, and for all fields with values of a wrong type."""
        form, problems = JobForm.readable(manifest)
        if problems:
            raise FormError.of(problems)
        return form

    @staticmethod
    def readable(manifest: Mapping[str, Any]) -> tuple[JobForm, Mapping[str, str]]:
        """The form without the fields that it cannot show, and a sentence for each of these.

        Raises `FormError` for a kind that is not a job's.
        """
        kind = kind_of(manifest)
        problems: dict[str, str] = {}
        values: dict[str, Any] = {}
        for place, parts in _parts_of(kind):
            for name, part in parts.items():
                try:
                    values[name] = part.read(mapping_at(manifest, place, field="name" if place == "metadata" else ""))
                except FormError as error:
                    problems.update(error.problems)
        return JobForm(kind, **values), problems

    def apply(self, manifest: Mapping[str, Any], kept: Collection[str] = ()) -> Manifest:
        """A copy of the manifest with the form's values, except of the fields in `kept`. `manifest` is not changed.

        Another kind begins a new manifest with the same metadata, unless it is one of `YAML_KINDS`. Raises `FormError`
        as `from_manifest` does.
        """
        job = plain_copy(manifest)
        if not job or kind_of(job) != self.kind:
            if self.kind in YAML_KINDS:
                return job
            metadata = job.get("metadata")
            job = new_manifest(self.kind)
            if isinstance(metadata, dict):
                job["metadata"] = metadata
        before = JobForm.from_manifest(job)
        compared = {each.name for each in fields(JobForm) if each.compare} - {*kept}
        changes = {name: value for name in compared if (value := getattr(self, name)) != getattr(before, name)}
        for place, parts in _parts_of(self.kind):
            for name, part in parts.items():
                if name in changes:
                    part.write(section_at(job, place), changes[name])
        return job


_METADATA_PARTS = {name: scalar(name, (name,), string_at) for name in ("name", "namespace")}


def _parts_of(kind: str) -> Sequence[tuple[str, Mapping[str, FormField]]]:
    """The fields of the form below `metadata` and below `spec`."""
    of_metadata = ("metadata", _METADATA_PARTS)
    return (of_metadata, ("spec", FORMS[kind].parts)) if kind in FORMS else (of_metadata,)


def kind_of(manifest: Mapping[str, Any]) -> str:
    """One of `FORMS` or `YAML_KINDS`. Raises `FormError` for any other kind."""
    try:
        kind = kind_of_manifest(manifest)
    except ClientError as error:
        raise FormError("kind", f"Kind: the manifest is {error}.") from None
    return kind.resource.kind if kind.form is not None else _yaml_kind(kind)


def new_manifest(kind: str) -> Manifest:
    """The manifest with which an empty form begins."""
    form = FORMS[kind]
    return {"apiVersion": form.resource.api_version, "kind": kind, "metadata": {}, "spec": form.new_spec()}


def cloned(manifest: Mapping[str, Any]) -> Manifest:
    """The manifest of a new job like this one, without status and the fields that identify the existing object."""
    job = plain_copy(manifest)
    metadata = job.get("metadata", {})
    kept = {name: metadata[name] for name in ("namespace", "labels", "annotations") if name in metadata}
    annotations = {
        key: value
        for key, value in kept.pop("annotations", {}).items()
        if key != RECORD_ANNOTATION and not key.startswith("kubectl.kubernetes")
    }
    job["metadata"] = {
        "name": f"{metadata.get('name', 'job')}-copy",
        **kept,
        **({"annotations": annotations} if annotations else {}),
    }
    job.pop("status", None)
    kind = kind_of(job)
    for name in FORMS[kind].identity_fields if kind in FORMS else ():
        job.get("spec", {}).pop(name, None)
    return job


def plain_copy(manifest: Mapping[str, Any]) -> Manifest:
    """A copy in which nothing is shared, as JSON has it. Raises `FormError` for values that JSON cannot represent."""
    left = [_MAX_VALUES]

    def copied(value: Any, depth: int) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > _MAX_DEPTH:
            raise FormError("", f"The YAML has more than {_MAX_VALUES} values or {_MAX_DEPTH} levels; shorten it.")
        if isinstance(value, Mapping):
            if any(not isinstance(key, str) for key in value):
                raise FormError("", "The YAML has a key that is not a string; put it into quotes.")
            return {key: copied(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [copied(item, depth + 1) for item in value]
        if isinstance(value, int) and abs(value) > _MAX_NUMBER:
            raise FormError("", "The YAML has a number of more than 64 bits; put it into quotes.")
        if value is None or isinstance(value, (str, int, float)):
            return value
        raise FormError("", f"The YAML has a value of type {type(value).__name__}; put it into quotes.")

    copy: Manifest = copied(manifest, 0)
    return copy
