"""Runs the real kubectl, as a user would."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster.errors import LocalClusterError

TIMEOUT_SECONDS = 60
CRDS = Path("manifests/base/crds")
_CRDS_SECONDS, _POLL_SECONDS = 60.0, 0.2


class KubectlError(LocalClusterError):
    """kubectl failed; the message is its output."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl for one cluster and namespace."""

    binary: Path
    kubeconfig: Path
    namespace: str

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Runs kubectl and returns its output. Raises `KubectlError`."""
        command = [str(self.binary), "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *arguments]
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"kubectl {' '.join(arguments)}: no answer within {TIMEOUT_SECONDS} s") from error
        if done.returncode != 0:
            raise KubectlError((done.stderr or done.stdout).strip())
        return done.stdout

    def get(self, *arguments: str) -> dict[str, Any]:
        """Returns an object, or a list of objects, as decoded JSON."""
        answer: dict[str, Any] = json.loads(self.run("get", *arguments, "-o", "json"))
        return answer

    def items(self, kind: str, selector: str) -> Sequence[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(kind, "-l", selector)["items"]
        return items

    def exists(self, *arguments: str) -> bool:
        return bool(self.run("get", *arguments, "--ignore-not-found", "-o", "name").strip())


def apply_crds(kubectl: Kubectl, root: Path, limit_seconds: float = _CRDS_SECONDS) -> str:
    """Applies the CRDs and waits until they are established; returns the output of kubectl. Raises `KubectlError`."""
    output = kubectl.run("apply", "--server-side", "-f", str(root / CRDS))
    deadline = time.monotonic() + limit_seconds
    while True:
        try:
            kubectl.run("wait", "--for=condition=Established", "-f", str(root / CRDS), "--timeout=30s")
        except KubectlError:
            # kubectl wait fails at once if the conditions of a CRD are null, as they are right after its creation.
            if time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return output
