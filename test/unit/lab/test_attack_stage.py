"""attack.stage: the memory limits are those that are shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from lab.attack.stage import CONTROLLER_BYTES, DASHBOARD_BYTES, EXTENDER_BYTES, MIB

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
UNITS = {"Mi": MIB, "Gi": 1024 * MIB}


def limit_of(folder: str, container: str) -> int:
    deployment: dict[str, Any] = yaml.safe_load((MANIFESTS / folder / "deployment.yaml").read_text())
    containers = {container["name"]: container for container in deployment["spec"]["template"]["spec"]["containers"]}
    text = containers[container]["resources"]["limits"]["memory"]
    return int(text[:-2]) * UNITS[text[-2:]]


def test_the_limits_are_those_of_the_deployments() -> None:
    assert limit_of("base/manager", "manager") == CONTROLLER_BYTES
    assert limit_of("base/extender", "extender") == EXTENDER_BYTES
    assert limit_of("components/dashboard", "dashboard") == DASHBOARD_BYTES
