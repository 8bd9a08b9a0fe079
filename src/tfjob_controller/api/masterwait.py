"""How the workers of a PyTorchJob wait until the name of the master resolves: by init containers.

Those are training-operator's, or the containers in the template of an administrator, a YAML list in which
`{{.MasterAddr}}`, `{{.InitContainerImage}}` and `{{.MaxTries}}` stand for the name of the master and values of flags.

Source: kubeflow/trainer release-1.9 pkg/controller.v1/pytorch/initcontainer.go, which renders a template of Go's
html/template. Of its language these three fields are supported here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tfjob_controller.api.controllerconfig import ConfigError, loaded

# Training-operator's. The file is used if it exists.
DEFAULT_IMAGE = "alpine:3.10"
DEFAULT_MAX_TRIES = 100
DEFAULT_TEMPLATE_FILE = "/etc/config/initContainer.yaml"

_NAME = "init-pytorch"
_INTERVAL_SECONDS = 2
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ACTION = re.compile(r"{{(.*?)}}", re.DOTALL)
# Stands for the name of the master until the job is known.
_MASTER = "__NAME-OF-THE-MASTER__"


@dataclass(frozen=True, slots=True)
class MasterWait:
    """The init containers of workers, as JSON, in which the name of the master is still to be put."""

    text: str

    def containers(self, master: str) -> Sequence[Mapping[str, Any]]:
        """Returns the containers that wait for this name, a DNS name."""
        containers: list[Mapping[str, Any]] = msgspec.json.decode(self.text.replace(_MASTER, master))
        return containers


def default_wait(
    image: str = DEFAULT_IMAGE, max_tries: int = DEFAULT_MAX_TRIES, interval_seconds: int = _INTERVAL_SECONDS
) -> MasterWait:
    """Returns training-operator's container with another script."""
    script = (
        f"for attempt in $(seq {max_tries}); do "
        f"nslookup {_MASTER} && exit 0; "
        f"echo waiting for {_MASTER}; sleep {interval_seconds}; "
        "done; exit 1"
    )
    return _wait_of(
        [
            {
                "name": _NAME,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script],
                "resources": {
                    "requests": {"cpu": "50m", "memory": "10Mi"},
                    "limits": {"cpu": "100m", "memory": "20Mi"},
                },
            }
        ]
    )


def read_wait(path: str, image: str, max_tries: int) -> MasterWait:
    """Returns the containers of the template in a file; the default ones without it, if it has the default path.

    Raises ConfigError.
    """
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        if path == DEFAULT_TEMPLATE_FILE:
            return default_wait(image, max_tries)
        raise ConfigError(f"cannot read {path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read {path}: {reason}") from None
    try:
        return parse_wait(text, image, max_tries)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_wait(template: str, image: str, max_tries: int) -> MasterWait:
    """Returns the containers of a template. Raises ConfigError."""
    values = {".MasterAddr": _MASTER, ".InitContainerImage": image, ".MaxTries": str(max_tries)}

    def value(action: re.Match[str]) -> str:
        field = action[1].strip()
        if field not in values:
            names = ", ".join(f"{{{{{name}}}}}" for name in values)
            shown = " ".join(field.split())[:64].encode("unicode_escape").decode()
            raise ConfigError(f"{{{{{shown}}}}} is not supported, only {names}")
        return values[field]

    text = _ACTION.sub(value, template)
    # `loaded` names what is wrong with a text that is no YAML.
    with contextlib.suppress(yaml.YAMLError):
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            # Loading them could take any amount of time and memory.
            raise ConfigError("aliases (*name) are not supported")
    return _wait_of(loaded(text) or [])


def _wait_of(containers: object) -> MasterWait:
    if not isinstance(containers, list):
        raise ConfigError("must be a list of containers")
    for index, container in enumerate(containers):
        name = container.get("name") if isinstance(container, dict) else None
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            raise ConfigError(f"[{index}] must be a container whose name is a DNS label, such as wait-for-master")
    try:
        return MasterWait(msgspec.json.encode(containers).decode())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"a value that no container has: {error}") from None
