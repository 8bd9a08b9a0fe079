"""The texts of the form for a new job: what a person types, and what is wrong with it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import yaml

from tfjob_controller.api.common.accelerators import is_accelerator
from tfjob_controller.api.common.quantity import milli_of
from tfjob_controller.api.common.schema import INT32_MAX
from tfjob_controller.api.common.storage import INPUT_URI, MAX_ENV, MAX_KEPT, MAX_URI, OUTPUT_URI
from tfjob_controller.api.common.storagevalidation import UNKNOWN_SOURCE, UNKNOWN_TARGET
from tfjob_controller.api.trainjob.types import CLUSTER_RUNTIME, MAX_MOUNTS, RUNTIME_KINDS
from tfjob_controller.dashboard.jobform import COMMON_FIELDS, FORMS, YAML_KINDS, JobForm, plain_copy
from tfjob_controller.kinds.kindform import LABELS, UNPRINTABLE, FormError, KindForm, Manifest
from tfjob_controller.kinds.podform import GPU, ClaimMount, Gpus, Variable
from tfjob_controller.kube.config.plainconfig import load_yaml
from tfjob_controller.kube.names import name_violation, namespace_violation
from tfjob_controller.util.yamlengine import safe_dumper

MAX_YAML = 200_000
# The texts that a browser sends: one for each field of the form, and the resource of the GPUs.
FIELDS = (*(field.name for field in fields(JobForm)), "gpu_resource")
_NUMBERS = {
    "gpus": (0, 1024),
    "keep": (1, MAX_KEPT),
    "priority": (-INT32_MAX - 1, INT32_MAX),
    "restarts": (0, INT32_MAX),
}
_SECONDS = {"gang_timeout": 1, "deadline": 0, "ttl": 0}
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_TIME = re.compile(r"([0-9]{1,10})\s*([smhd]?)")
_GANGS = {"": None, "yes": True, "no": False}
_SOURCES, _TARGETS = ("dataset", "model"), ("output", "checkpoint")
# The longest text of each field. A number has at most as many digits.
_MAX_TEXT = {
    **dict.fromkeys(("kind", "namespace", "framework"), 63),
    **dict.fromkeys(("name", *(f"{field}_secret" for field in _SOURCES + _TARGETS)), 253),
    **dict.fromkeys(_SOURCES + _TARGETS, MAX_URI),
    **dict.fromkeys(("runtime", "gpu_resource"), 317),
    "image": 1000,
    **dict.fromkeys(("command", "env", "volumes", "other_env", "other_volumes"), 50_000),
}
_LEAST_MEMORY = 1024 * 1024 * 1000
_OTHERS = ("other_env", "other_volumes")


def texts_of(form: JobForm) -> dict[str, str]:
    """The text of each field. `form_of` is the way back."""
    return {name: _text(name, getattr(form, name, "")) for name in FIELDS} | {
        "gpus": str(form.gpus.count) if form.gpus else "",
        "gpu_resource": form.gpus.resource if form.gpus else GPU,
    }


def _text(name: str, value: Any) -> str:
    match name:
        case "command":
            return shlex.join(value)
        case "env":
            return "\n".join(f"{variable.name}={variable.value}" for variable in value)
        case "volumes":
            return "\n".join(f"{mount.claim}:{mount.path}{':ro' * mount.read_only}" for mount in value)
        case "other_env" | "other_volumes":
            return "\n".join(value)
        case "gang":
            return next(text for text, flag in _GANGS.items() if flag is value)
        case "runtime":
            return str(value).removeprefix(f"{CLUSTER_RUNTIME}/")
        case "gang_timeout" | "deadline" | "ttl" if value:
            unit = next(unit for unit, seconds in _UNITS.items() if value % seconds == 0)
            return f"{value // _UNITS[unit]}{unit}"
    return "" if value is None else str(value)


def form_of(texts: Mapping[str, str]) -> JobForm:
    """Raises `FormError` with a sentence for each field that is wrong."""
    form, problems = read_texts(texts)
    if problems:
        raise FormError.of(problems)
    return form


def read_texts(texts: Mapping[str, str]) -> tuple[JobForm, dict[str, str]]:
    """The form without the fields that are wrong, and a sentence for each of these.

    Fields that jobs of the kind do not have are left out. Raises `FormError` for an unknown kind.
    """
    given = {name: texts.get(name, "").replace("\r\n", "\n") for name in FIELDS}
    kind = given["kind"]
    if kind not in FORMS and kind not in YAML_KINDS:
        raise FormError("kind", f"Kind: is unknown; choose {' or '.join(FORMS)}.")
    form, problems = FORMS.get(kind), dict[str, str]()
    values: dict[str, Any] = {"kind": kind}
    for name in FIELDS[1:]:
        if name in COMMON_FIELDS or (form is not None and name in form.parts):
            try:
                values[name] = _value(name, given, form)
            except ValueError as error:
                problems[name] = f"{_label(name, form)}: {error}"
    return JobForm(**values), problems


def _label(name: str, form: KindForm | None) -> str:
    return form.nodes_label if name == "nodes" and form is not None else LABELS.get(name, name)


def _value(name: str, given: Mapping[str, str], form: KindForm | None) -> Any:
    """The value of a field. Raises ValueError with what is wrong and the remedy."""
    text = given[name]
    if len(text) > (limit := _MAX_TEXT.get(name, 20)):
        raise ValueError(f"has more than {limit} characters; shorten it.")
    if UNPRINTABLE.search(text):
        raise ValueError("has control characters; remove them.")
    if name in ("command", "env", *_OTHERS):
        return _READERS[name](text)
    text = text.strip()
    if name in _READERS:
        return _READERS[name](text)
    if name in _SECONDS:
        return _seconds(text, _SECONDS[name]) if text else None
    if name == "gpus":
        return _gpus(text, given["gpu_resource"].strip())
    if name in _NUMBERS or name in ("nodes", "minimum", "maximum"):
        return _number(name, text, form)
    if text:
        _check_text(name, text)
    return text


def _number(name: str, text: str, form: KindForm | None) -> int | None:
    if name == "nodes" and form is not None and form.requires_nodes:
        return _whole(text, form.min_nodes, form.max_nodes, f" ({form.nodes_hint})")
    least, most = _NUMBERS.get(name, (1, form.max_nodes if form is not None else 0))
    return _whole(text, least, most, ", or leave it empty") if text else None


def _gpus(text: str, resource: str) -> Gpus | None:
    if (count := _number("gpus", text, None)) is None:
        return None
    if not is_accelerator(resource) or " " in resource or UNPRINTABLE.search(resource):
        raise ValueError("the resource is not one of GPUs; choose one of the list.")
    return Gpus(count, resource)


def _check_text(name: str, text: str) -> None:
    """Raises ValueError for a text that is not empty and cannot be the value of the field."""
    if name == "namespace":
        _refuse(namespace_violation(text))
    elif name == "name" or name.endswith("_secret"):
        _refuse(name_violation(text))
    elif name in _SOURCES:
        _refuse("" if re.search(INPUT_URI, text) else UNKNOWN_SOURCE)
    elif name in _TARGETS:
        _refuse("" if re.search(OUTPUT_URI, text) else UNKNOWN_TARGET)
    elif "\n" in text or " " in text:
        raise ValueError("has spaces or line breaks; remove them.")
    elif name in ("cpu", "memory", "shared_memory"):
        _check_quantity(name, text)


def _refuse(violation: str) -> None:
    if violation:
        raise ValueError(f"{violation}; correct it.")


def _check_quantity(name: str, text: str) -> None:
    example = "500m or 4" if name == "cpu" else "512Mi or 16Gi"
    try:
        amount = milli_of(text)
    except ValueError:
        raise ValueError(f"is not a quantity; give one such as {example}.") from None
    if amount <= 0:
        raise ValueError(f"must be more than 0; give a quantity such as {example}, or leave it empty.")
    if name != "cpu" and amount < _LEAST_MEMORY:
        raise ValueError(f"is less than 1 MiB; add a unit, as in {example}.")


def _whole(text: str, least: int, most: int, remedy: str) -> int:
    digits = text.removeprefix("-") if least < 0 else text
    if not (digits.isascii() and digits.isdecimal() and least <= int(text) <= most):
        raise ValueError(f"must be a whole number from {least} to {most}; give one{remedy}.")
    return int(text)


def _seconds(text: str, least: int) -> int:
    match = _TIME.fullmatch(text)
    seconds = int(match[1]) * _UNITS[match[2] or "s"] if match else -1
    if not least <= seconds <= INT32_MAX:
        raise ValueError(f"must be a time from {least}s to {INT32_MAX}s; give one such as 90s, 30m, 2h or 7d.")
    return seconds


def _runtime(text: str) -> str:
    """As `KIND/NAME`. A name alone is one of the cluster."""
    if not text:
        return ""
    kind, _, name = text.rpartition("/")
    if (kind or CLUSTER_RUNTIME) not in RUNTIME_KINDS:
        raise ValueError(f"is of an unknown kind; give NAME, or {RUNTIME_KINDS[0]}/NAME.")
    _refuse(name_violation(name))
    return f"{kind or CLUSTER_RUNTIME}/{name}"


def _gang(text: str) -> bool | None:
    if text not in _GANGS:
        raise ValueError("is unknown; choose one of the list.")
    return _GANGS[text]


def _command(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        raise ValueError("has a quotation mark or backslash without its end; add it.") from None


def _variables(text: str) -> tuple[Variable, ...]:
    variables: dict[str, Variable] = {}
    for number, line in _lines(text, MAX_ENV):
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ValueError(f"line {number} is not NAME=value; correct it.")
        if name in variables:
            raise ValueError(f"line {number} sets {name[:80]} again; remove one of the lines.")
        variables[name] = Variable(name, value)
    return tuple(variables.values())


def _claim_mounts(text: str) -> tuple[ClaimMount, ...]:
    mounts: dict[str, ClaimMount] = {}
    for number, line in _lines(text, MAX_MOUNTS):
        claim, path, *options = [part.strip() for part in line.split(":")] + [""] * (":" not in line)
        if name_violation(claim) or not path.startswith("/") or options not in ([], ["ro"]):
            raise ValueError(f"line {number} is not CLAIM:/PATH or CLAIM:/PATH:ro; correct it.")
        if path in mounts:
            raise ValueError(f"line {number} mounts a second volume at {path[:80]}; choose another path.")
        mounts[path] = ClaimMount(claim, path, bool(options))
    return tuple(mounts.values())


def _lines(text: str, most: int) -> Sequence[tuple[int, str]]:
    """The lines that are not empty, with their numbers."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > most:
        raise ValueError(f"has more than {most} lines; remove some.")
    return lines


def _texts(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n")) if text else ()


_READERS: Mapping[str, Callable[[str], Any]] = {
    "command": _command,
    "env": _variables,
    "volumes": _claim_mounts,
    "gang": _gang,
    "runtime": _runtime,
    **dict.fromkeys(_OTHERS, _texts),
}


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
