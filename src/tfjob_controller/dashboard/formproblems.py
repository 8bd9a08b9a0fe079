"""Which field of the form for a new job an error of the API server is about."""

from __future__ import annotations

import re

from tfjob_controller.client.errors import ClientError
from tfjob_controller.dashboard.jobform import FORMS
from tfjob_controller.kube.errors import ApiError

# The names by which messages of the API server and of this operator call the fields. The first in the text counts, and
# of several at one place the first here.
_NAMED = tuple(
    (field, re.compile(pattern))
    for field, pattern in (
        ("namespace", r"metadata\.namespace|\bnamespaces?\b"),
        ("name", r"metadata\.(?:name|generateName)\b|already exists|\bgenerateName\b"),
        ("runtime", r"\b(?:spec\.)?runtimeRef\b"),
        ("dataset_secret", r"\b(?:spec\.)?datasetConfig\.secretRef\b"),
        ("dataset", r"\b(?:spec\.)?datasetConfig\b"),
        ("model_secret", r"\b(?:spec\.)?modelConfig\.input\.secretRef\b"),
        ("output_secret", r"\b(?:spec\.)?modelConfig\.output\.secretRef\b"),
        ("output", r"\b(?:spec\.)?modelConfig\.output\b"),
        ("model", r"\b(?:spec\.)?modelConfig\b"),
        ("checkpoint_secret", r"\b(?:spec\.)?checkpoint\.secretRef\b"),
        ("keep", r"\b(?:spec\.)?checkpoint\.keep\b"),
        ("checkpoint", r"\b(?:spec\.)?checkpoint\b"),
        ("gang_timeout", r"\b(?:spec\.)?gang\.timeoutSeconds\b"),
        ("priority", r"\b(?:spec\.)?gang\.priority\b"),
        ("gang", r"\b(?:spec\.)?gang\b"),
        ("framework", r"\b(?:spec\.)?framework\b"),
        ("cpu", r"\bresources(?:PerNode)?\S*[.\[]cpu\b|\bcpu (?:limit|request)|\.cpu\b"),
        ("memory", r"\bresources(?:PerNode)?\S*[.\[]memory\b|\bmemory (?:limit|request)|\.memory\b"),
        ("gpus", r"nvidia\.com/gpu|\bresources(?:PerNode)?\b"),
        ("volumes", r"\bvolumeMounts\b|\bvolumes\b|\bpersistentvolumeclaims?\b"),
        ("env", r"\benv\b"),
        ("deadline", r"\bactiveDeadlineSeconds\b"),
        ("ttl", r"\bttlSecondsAfterFinished\b"),
        ("image", r"(?:\.|\b)image\b(?!s)"),
        ("command", r"\bcommand\b"),
        ("kind", r"\bapiVersion\b"),
        *(pattern for form in FORMS.values() for pattern in form.message_patterns),
    )
)
# What the API server adds to the problems of a schema: the rules of the CRD come after these.
_INCOMPLETE = "correct the existing errors to complete validation"
# What strict decoding refuses: several of these in one message, without causes.
_REFUSED_FIELD = re.compile(r'(?:unknown|duplicate) field "([^"]{1,1000})"')
_MAX_MESSAGE = 5000
_QUOTED_NAME = re.compile(r'"[^"]*" (?=is invalid|already|is forbidden)')


def problems_of(error: ApiError | ClientError, message: str) -> dict[str, str]:
    """The answer of a dry run at the fields that it names, and the rest as "yaml". `message` is the whole message."""
    refusal = error.api_error if isinstance(error, ClientError) else error
    problems: dict[str, str] = {}
    causes = refusal.causes if refusal is not None else ()
    for path, cause in [each for each in causes if not each[1].endswith(_INCOMPLETE)] or causes:
        field = field_named(path) or field_named(cause) or "yaml"
        sentence = f"{path}: {cause}" if path and path != "<nil>" else cause
        problems[field] = f"{problems[field]}; {sentence}" if field in problems else sentence
    if problems:
        return problems
    refused = {match[0]: match[1] for match in _REFUSED_FIELD.finditer(message[:_MAX_MESSAGE])}
    for sentence, path in refused.items():
        field = field_named(path) or "yaml"
        text = f"{sentence}: correct or remove it in the YAML"
        problems[field] = f"{problems[field]}; {text}" if field in problems else text
    return problems or {field_named(message) or "yaml": message}


def field_named(text: str) -> str:
    """The field of the form that a path or a message names first; empty if it names none."""
    text = _QUOTED_NAME.sub("", text[:_MAX_MESSAGE])
    matches = [
        (match.start(), order, field)
        for order, (field, pattern) in enumerate(_NAMED)
        if (match := pattern.search(text))
    ]
    return min(matches)[2] if matches else ""
