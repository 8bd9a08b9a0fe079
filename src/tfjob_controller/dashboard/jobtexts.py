"""The texts of the form for a new job: what a person types, what is wrong with it, and which field an error names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import yaml

from tfjob_controller.client.errors import ClientError
from tfjob_controller.dashboard.jobform import DEFAULT_KIND, FORMS, YAML_KINDS, JobForm, plain_copy
from tfjob_controller.kinds.kindform import UNPRINTABLE, FormError, KindForm, Manifest
from tfjob_controller.kube.config.plainconfig import load_yaml
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.util.yamlengine import safe_dumper

MAX_YAML = 200_000
FIELDS = tuple(field.name for field in fields(JobForm))
LABELS = {
    "kind": "Kind",
    "name": "Name",
    "namespace": "Namespace",
    "image": "Image",
    "command": "Command",
    "framework": "Framework",
    "nodes": "Nodes",
    "gpus": "GPUs of each node",
    "gang": "Gang",
    "minimum": "At least",
    "maximum": "At most",
}
# The longest text of each field. A number has at most as many digits.
_MAX_TEXT = {"kind": 63, "name": 253, "namespace": 63, "image": 1000, "command": 50_000, "framework": 63}
_MAX_GPUS = 1024
_GANGS = {"": None, "yes": True, "no": False}
# The names by which messages of the API server and of this operator call the fields. The first in the text counts.
_NAMED = (
    ("namespace", r"metadata\.namespace|\bnamespaces?\b"),
    ("name", r"metadata\.(?:name|generateName)\b|already exists|\bgenerateName\b"),
    ("gang", r"\b(?:spec\.)?gang\b"),
    ("framework", r"\b(?:spec\.)?framework\b"),
    ("gpus", r"nvidia\.com/gpu|\bresources\b"),
    ("image", r"(?:\.|\b)image\b(?!s)"),
    ("command", r"\bcommand\b"),
    ("kind", r"\bapiVersion\b"),
    *(pattern for form in FORMS.values() for pattern in form.message_patterns),
)
_QUOTED_NAME = re.compile(r'"[^"]*" (?=is invalid|already|is forbidden)')


@dataclass(frozen=True, slots=True)
class Problems:
    """Sentences by field; those of no field, which are shown above the YAML, have the key "yaml"."""

    by_field: Mapping[str, str]

    def of(self, field: str) -> str:
        return self.by_field.get(field, "")


NO_PROBLEMS = Problems({})


class TextError(Exception):
    """What was typed cannot be a job."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = Problems(problems)


def texts_of(form: JobForm) -> dict[str, str]:
    """The text of each field. `form_of` is the way back."""
    values = {name: getattr(form, name) for name in FIELDS}
    numbers = {name: str(value) for name, value in values.items() if isinstance(value, int) and name != "gang"}
    gang = next(text for text, value in _GANGS.items() if value is form.gang)
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    return dict.fromkeys(FIELDS, "") | texts | numbers | {"gang": gang, "command": shlex.join(form.command)}


def form_of(texts: Mapping[str, str]) -> JobForm:
    """Raises `TextError` with a sentence for each field that is wrong."""
    given = {name: texts.get(name, "").replace("\r\n", "\n") for name in FIELDS}
    problems: dict[str, str] = {}
    values: dict[str, Any] = {}
    kind_form = FORMS.get(given["kind"])
    if given["kind"] in YAML_KINDS:
        given = {name: given[name] for name in ("kind", "name", "namespace")}
        kind_form = FORMS[DEFAULT_KIND]  # these fields are those of all kinds
    if kind_form is None:
        raise TextError({"kind": f"Kind: is unknown; choose {' or '.join(FORMS)}."})
    for name, text in given.items():
        try:
            values[name] = _value(name, text, kind_form)
        except ValueError as error:
            problems[name] = f"{LABELS[name]}: {error}"
    if problems:
        raise TextError(problems)
    return JobForm(**values)


def framework_hint() -> str:
    return " ".join(f"Of a {kind}: {form.framework_hint}" for kind, form in FORMS.items() if form.framework_hint)


def _value(name: str, text: str, form: KindForm) -> Any:
    """The value of a field. Raises ValueError with what is wrong and the remedy."""
    if len(text) > (limit := _MAX_TEXT.get(name, 20)):
        raise ValueError(f"has more than {limit} characters; shorten it.")
    if UNPRINTABLE.search(text):
        raise ValueError("has control characters; remove them.")
    if name == "gang":
        if text not in _GANGS:
            raise ValueError("is unknown; choose one of the list.")
        return _GANGS[text]
    if name == "command":
        return _command(text)
    text = text.strip()
    if name in ("nodes", "gpus", "minimum", "maximum"):
        is_required = name == "nodes" and form.requires_nodes
        if not text and not is_required:
            return None
        least = {"nodes": form.min_nodes, "gpus": 0}.get(name, 1)
        remedy = f" ({form.nodes_hint})" if is_required else ", or leave it empty"
        return _whole(text, least, _MAX_GPUS if name == "gpus" else form.max_nodes, remedy)
    if name == "framework" and form.fixed_framework and text:
        others = " or ".join(kind for kind, other in FORMS.items() if not other.fixed_framework)
        remedy = f"leave it empty, or choose the kind {others}" if others else "leave it empty"
        raise ValueError(f"a {form.resource.kind} always runs {form.fixed_framework}; {remedy}.")
    if "\n" in text or (name in ("image", "framework") and " " in text):
        raise ValueError("has spaces or line breaks; remove them.")
    return text


def _whole(text: str, least: int, most: int, remedy: str) -> int:
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise ValueError(f"must be a whole number from {least} to {most}; give one{remedy}.")
    return int(text)


def _command(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        raise ValueError("has a quotation mark or backslash without its end; add it.") from None


def manifest_of(text: str) -> Manifest:
    """The manifest of a YAML text; empty for an empty one. Raises `FormError`."""
    if len(text) > MAX_YAML:
        raise FormError("yaml", f"The YAML has more than {MAX_YAML} characters; shorten it, or use kubectl.")
    try:
        manifest = load_yaml(text.encode())
    except (yaml.YAMLError, ValueError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or "the text is not one YAML document"
        raise FormError("yaml", f"The YAML cannot be read: {where}{problem}; correct it.") from None
    if manifest is not None and not isinstance(manifest, dict):
        raise FormError("yaml", "The YAML is not a mapping; it must begin with apiVersion and kind.")
    return plain_copy(manifest or {})


def yaml_of(manifest: Manifest) -> str:
    """The manifest as YAML. If it has characters that would change how the text is shown, all but ASCII is escaped."""
    text = _dumped(manifest, allow_unicode=True)
    return _dumped(manifest, allow_unicode=False) if UNPRINTABLE.search(text) else text


def _dumped(manifest: Manifest, *, allow_unicode: bool) -> str:
    return str(yaml.dump(manifest, Dumper=safe_dumper(), sort_keys=False, allow_unicode=allow_unicode, width=100))


def problems_of(error: ApiError | ClientError, message: str) -> Problems:
    """The answer of a dry run at the fields that it names. `message` is the whole message."""
    refusal = error.api_error if isinstance(error, ClientError) else error
    problems: dict[str, str] = {}
    for path, cause in refusal.causes if refusal is not None else ():
        field = field_named(path) or field_named(cause) or "yaml"
        sentence = f"{path}: {cause}" if path and path != "<nil>" else cause
        problems[field] = f"{problems[field]}; {sentence}" if field in problems else sentence
    return Problems(problems or {field_named(message) or "yaml": message})


def field_named(text: str) -> str:
    """The field of the form that a path or a message names first; empty if it names none."""
    text = _QUOTED_NAME.sub("", text[:5000])
    matches = [(match.start(), field) for field, pattern in _NAMED if (match := re.search(pattern, text))]
    return min(matches)[1] if matches else ""
