"""The controller's config file (`--controller-config-file`).

    tfImage: tensorflow/tensorflow:2.21.0
    initializerImage: registry.example.com/tfjob-initializer:0.1.0
    accelerators:
      nvidia.com/gpu:
        volumes:
        - {name: lib, hostPath: /home/kubernetes/bin/nvidia/lib64, mountPath: /usr/local/nvidia/lib64}
        envVars:
        - {name: LD_LIBRARY_PATH, value: /usr/local/nvidia/lib64}

Unknown keys are errors, because a typo would otherwise show only in a job without its GPU. Every problem is a
`ConfigError` with one line that names the file and the key.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

# The image of the default parameter server, if neither the job nor this file names one.
DEFAULT_TF_IMAGE = "tensorflow/tensorflow:2.21.0"

# The image of initializers and exporters, if this file names none.
DEFAULT_INITIALIZER_IMAGE = "tfjob-initializer:latest"

# "Object contains unknown field `x` - at `$.volumes[0]`", "Expected `str`, got `int` - at `$.tfImage`"
_MSGSPEC_ERROR = re.compile(r"(?P<problem>.*?)(?: - at `(?:key` in `)?\$(?P<path>.*)`)?$", re.DOTALL)

_ValueT = TypeVar("_ValueT")

# A valid file has six levels.
_MAX_LEVELS = 20


class ConfigError(Exception):
    """The config file is invalid. The message is one line for users."""


class _Loader(yaml.SafeLoader):
    """Rejects deep nesting, and duplicate keys, of which PyYAML would use the last."""

    levels = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.levels += 1
        if self.levels > _MAX_LEVELS:
            raise yaml.composer.ComposerError(None, None, "there are too many levels", None)
        node = super().compose_node(parent, index)
        self.levels -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                message = f"the key {key.value} occurs twice"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


class _Value(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of all values here; unknown fields are errors."""


class HostVolume(_Value, frozen=True):
    """A directory of the node, and its mount path in the container."""

    name: str
    host_path: str
    mount_path: str


class EnvVar(_Value, frozen=True):
    name: str
    value: str


class Accelerator(_Value, frozen=True):
    """The additions to a container that requests one resource."""

    volumes: tuple[HostVolume, ...] = ()
    env_vars: tuple[EnvVar, ...] = ()


class ControllerConfig(_Value, frozen=True):
    """The content of the file; `accelerators` is by resource name."""

    tf_image: str = DEFAULT_TF_IMAGE
    initializer_image: str = DEFAULT_INITIALIZER_IMAGE
    accelerators: dict[str, Accelerator] = {}


class _File(_Value, frozen=True):
    """The file with undecoded accelerators, since msgspec does not name the key of a dict in its errors."""

    tf_image: str = DEFAULT_TF_IMAGE
    initializer_image: str = DEFAULT_INITIALIZER_IMAGE
    accelerators: dict[str, Any] = {}


def read_controller_config(path: str) -> ControllerConfig:
    """The config in a file; without a path the defaults. Raises `ConfigError`."""
    if not path:
        return ControllerConfig()
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read {path}: {reason}") from None
    return parse_controller_config(text, path)


def parse_controller_config(text: str, source: str = "controller config") -> ControllerConfig:
    """The config in a YAML text; an empty text gives the defaults. `source` names the file in errors."""
    try:
        file = _read(loaded(text), _File, "")
        return ControllerConfig(
            file.tf_image,
            file.initializer_image,
            {
                name: _read(settings, Accelerator, f"accelerators[{name}]")
                for name, settings in file.accelerators.items()
            },
        )
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def loaded(text: str) -> object:
    """The value of a YAML text; an empty mapping for an empty one. Raises `ConfigError`."""
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 -- it is a safe one
    except yaml.YAMLError as error:
        raise ConfigError(f"no YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:
        # PyYAML passes on ValueErrors of Python, such as those of invalid dates and numbers with thousands of digits.
        raise ConfigError(f"a value that cannot be read: {' '.join(str(error).split())}") from None
    return {} if document is None else document


def _read(value: object, kind: type[_ValueT], at: str) -> _ValueT:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(_in_words(at, str(error))) from None


def _in_words(at: str, error: str) -> str:
    match = _MSGSPEC_ERROR.match(error)
    problem, path = (match["problem"], match["path"] or "") if match else (error, "")
    where = (at + path).lstrip(".")
    problem = problem.replace("`", "").replace("Object contains unknown field", "unknown key")
    problem = problem.replace("Object missing required field", "missing key")
    return f"{where}: {problem[:1].lower()}{problem[1:]}" if where else problem[:1].lower() + problem[1:]
