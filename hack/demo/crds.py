"""The kinds of this project, applied as a newcomer would."""

from __future__ import annotations

import time
from pathlib import Path

from demo.kubectl import Kubectl, KubectlError

CRDS = Path("manifests/base/crds")
_LIMIT_SECONDS = 60.0
_POLL_SECONDS = 0.2


def apply_crds(kubectl: Kubectl, root: Path, limit_seconds: float = _LIMIT_SECONDS) -> str:
    """What kubectl said; returns once the server takes objects of these kinds. Raises `KubectlError`."""
    said = kubectl.run("apply", "--server-side", "-f", str(root / CRDS))
    deadline = time.monotonic() + limit_seconds
    while True:
        try:
            kubectl.run("wait", "--for=condition=Established", "-f", str(root / CRDS), "--timeout=30s")
        except KubectlError:
            # It gives up at once on a CRD whose conditions are still null, as they are in its first moments.
            if time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return said
