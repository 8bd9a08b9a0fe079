"""Applies the CRDs of this project with kubectl, as a new user would."""

from __future__ import annotations

import time
from pathlib import Path

from demo.kubectl import Kubectl, KubectlError

CRDS = Path("manifests/base/crds")
_LIMIT_SECONDS = 60.0
_POLL_SECONDS = 0.2


def apply_crds(kubectl: Kubectl, root: Path, limit_seconds: float = _LIMIT_SECONDS) -> str:
    """Applies the CRDs and waits until they are established; returns the output of kubectl. Raises `KubectlError`."""
    said = kubectl.run("apply", "--server-side", "-f", str(root / CRDS))
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
            return said
