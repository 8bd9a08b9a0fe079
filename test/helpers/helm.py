"""The real helm, and the chart of this tree as it renders it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.kubectl import MANIFESTS, Answer
from helpers.renderings import Object
from localcluster import binaries
from localcluster.crds import documents

CHART = MANIFESTS / "helm" / "tfjob-controller"
_TIMEOUT_SECONDS = 600

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Helm:
    """Runs helm in one namespace, from the root of this tree.

    `home` is a folder of the test's own. Without a kubeconfig no cluster is reached.
    """

    home: Path
    namespace: str
    kubeconfig: Path | None = None

    def run(self, *arguments: str, values: Values | None = None) -> Answer:
        """`values` go to standard input, as a file of values."""
        folders = {f"HELM_{each}_HOME": str(self.home / each.lower()) for each in ("CACHE", "CONFIG", "DATA")}
        environment = {**os.environ, **folders, "KUBECONFIG": str(self.kubeconfig or os.devnull)}
        command = [str(binaries.ensure("helm")), *arguments, "--namespace", self.namespace]
        done = subprocess.run(
            command if values is None else [*command, "--values", "-"],
            cwd=MANIFESTS.parent,
            input=None if values is None else json.dumps(values),
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def must(self, *arguments: str, values: Values | None = None) -> str:
        """Returns the output; fails if helm fails."""
        answer = self.run(*arguments, values=values)
        assert answer.code == 0, answer.error
        return answer.out

    def template(self, values: Values, chart: Path = CHART, release: str = "release") -> list[Object]:
        """Returns what a release would consist of, with these images unless `values` name others."""
        return documents(self.must("template", release, str(chart), values=merged(IMAGES, values)))


# A chart names no images.
IMAGES: Values = {
    "image": {"repository": "localhost/tfjob-controller"},
    "gangScheduler": {"kubeScheduler": {"image": {"repository": "localhost/kube-scheduler"}}},
}


def merged(*values: Values) -> dict[str, Any]:
    """Returns all values together, as helm merges several files of values."""
    result: dict[str, Any] = {}
    for each in values:
        for key, value in each.items():
            known = result.get(key)
            result[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result


def leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Returns the paths of all values, with dots."""
    for key, value in tree.items():
        here = f"{path}{key}"
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{here}.")
        else:
            yield here
