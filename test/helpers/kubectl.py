"""The real kubectl, with its output on standard output and standard error."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster import binaries

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
CRDS = MANIFESTS / "base" / "crds"
_TIMEOUT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    error: str


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl against one cluster, in one namespace. `cache` is a folder of the test's own, for discovery."""

    kubeconfig: Path
    cache: Path
    namespace: str = "default"

    def run(self, *arguments: str, manifest: Mapping[str, Any] | str | None = None) -> Answer:
        """`manifest` goes to standard input, for `-f -`."""
        common = ("--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace, "--cache-dir", str(self.cache))
        command = [str(binaries.ensure("kubectl")), *common, *arguments]
        given = manifest if manifest is None or isinstance(manifest, str) else json.dumps(manifest)
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def must(self, *arguments: str, manifest: Mapping[str, Any] | str | None = None) -> str:
        """Returns the output; fails if kubectl fails."""
        answer = self.run(*arguments, manifest=manifest)
        assert answer.code == 0, answer.error
        return answer.out


def refusal(kind: str, name: str, *problems: str) -> str:
    """Returns the error that kubectl prints for an invalid object: one problem in the same line, several in a list."""
    head = f'The {kind} "{name}" is invalid: '
    return head + (problems[0] if len(problems) == 1 else "\n" + "\n".join(f"* {problem}" for problem in problems))
