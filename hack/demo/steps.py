"""What several demos do: apply a sample that is slowed down, and show the output of a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from demo.kubectl import Kubectl
from demo.screen import Screen

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
RUNTIMES = Path("manifests/base/runtimes")


def slowed(sample: Path, image: str, settings: Mapping[str, str]) -> list[Object]:
    """Returns the objects of a sample whose last one, a TrainJob, has this image and the settings that slow it down."""
    objects: list[Object] = list(yaml.safe_load_all((ROOT / sample).read_text()))
    trainer = objects[-1]["spec"]["trainer"]
    trainer["image"] = image
    trainer["env"] = [{"name": name, "value": value} for name, value in settings.items()]
    return objects


def apply_slowed(
    kubectl: Kubectl, screen: Screen, sample: Path, objects: Sequence[Object], settings: Mapping[str, str]
) -> None:
    """Applies the objects of a sample, and shows the command with the settings."""
    words = " ".join(f"{name}={value}" for name, value in settings.items())
    screen.step(f"kubectl apply -f {sample}   (with {words})")
    screen.output(kubectl.run("apply", "-f", "-", stdin=yaml.safe_dump_all(objects, sort_keys=False)))
    screen.blank()


def show(kubectl: Kubectl, screen: Screen, command: str, *more: str, only: str = "") -> None:
    """Runs a command and shows its output; with `only`, only lines with this word. `more` arguments are not shown."""
    with screen.command(f"{command} | grep {only}" if only else command):
        lines = kubectl.run(*command.split()[1:], *more).splitlines()
        screen.output("\n".join(line for line in lines if only in line))
