"""The controller's config file (`--controller-config-file`), as data.

    tfImage: tensorflow/tensorflow:2.21.0
    initializerImage: registry.example.com/tfjob-initializer:0.1.0
    accelerators:
      nvidia.com/gpu:
        volumes:
        - {name: lib, hostPath: /home/kubernetes/bin/nvidia/lib64, mountPath: /usr/local/nvidia/lib64}
        envVars:
        - {name: LD_LIBRARY_PATH, value: /usr/local/nvidia/lib64}

A typo in it would be found out only by a job that does not see its GPU, so nothing unknown passes: every problem is a
`ConfigError` of one line that names the file and the key.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
import yaml

# Image of the default parameter server where neither the job nor this file names one.
DEFAULT_TF_IMAGE = "tensorflow/tensorflow:2.21.0"

# Image of what fetches datasets and models, where this file names none.
DEFAULT_INITIALIZER_IMAGE = "tfjob-initializer:latest"

# "Object contains unknown field `x` - at `$.volumes[0]`", "Expected `str`, got `int` - at `$.tfImage`"
_MSGSPEC_ERROR = re.compile(r"(?P<problem>.*?)(?: - at `(?:key` in `)?\$(?P<path>.*)`)?$", re.DOTALL)

_ValueT = TypeVar("_ValueT")

# The deepest value of the file stands at the sixth.
_MAX_LEVELS = 20


class ConfigError(Exception):
    """The config file cannot be used; the message is one line, made to be shown as it is."""


class _Loader(yaml.SafeLoader):
    """Refuses endless levels, and a key that is there twice: the last would win. PyYAML wants a class for it."""

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
                words = f"the key {key.value} is there twice"
                raise yaml.constructor.ConstructorError(None, None, words, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


class _Value(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of all values here; unknown fields are errors."""


class HostVolume(_Value, frozen=True):
    """A folder of the node, and where the container sees it."""

    name: str
    host_path: str
    mount_path: str


class EnvVar(_Value, frozen=True):
    name: str
    value: str


class Accelerator(_Value, frozen=True):
    """What a container gets that asks for one resource."""

    volumes: tuple[HostVolume, ...] = ()
    env_vars: tuple[EnvVar, ...] = ()


class ControllerConfig(_Value, frozen=True):
    """All that the file can say; `accelerators` by resource name."""

    tf_image: str = DEFAULT_TF_IMAGE
    initializer_image: str = DEFAULT_INITIALIZER_IMAGE
    accelerators: dict[str, Accelerator] = {}


class _File(_Value, frozen=True):
    """The file, read one level deep: msgspec does not say under which key of a dict a problem is."""

    tf_image: str = DEFAULT_TF_IMAGE
    initializer_image: str = DEFAULT_INITIALIZER_IMAGE
    accelerators: dict[str, Any] = {}


def parse_controller_config(text: str, source: str = "controller config") -> ControllerConfig:
    """The config in a YAML text; an empty one means the defaults. `source` names the file in errors."""
    try:
        file = _read(_loaded(text), _File, "")
        return ControllerConfig(
            file.tf_image,
            file.initializer_image,
            {name: _read(each, Accelerator, f"accelerators[{name}]") for name, each in file.accelerators.items()},
        )
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _loaded(text: str) -> object:
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 -- it is a safe one
    except yaml.YAMLError as error:
        raise ConfigError(f"no YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:
        # A date that is none, a number of thousands of digits: what Python says of them comes through.
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
