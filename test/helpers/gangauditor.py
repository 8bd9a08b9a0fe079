"""The auditor of gangs (hack/audit) beside a test: at its end nothing forbidden must have happened."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HACK = Path(__file__).resolve().parents[2] / "hack"
# A test may start and end the gang scheduler, which takes its time on a busy machine.
_FIT_GRACE_SECONDS = 45.0
_LAG_SECONDS = 0.4
_END_SECONDS = 60.0


@contextlib.contextmanager
def audited(kubeconfig: Path, *more: str) -> Iterator[None]:
    """Fails with the violations that the auditor has seen, if the block did not fail itself. `more` are its flags."""
    argv = [sys.executable, "-m", "audit", f"--kubeconfig={kubeconfig}"]
    argv += [f"--fit-grace={_FIT_GRACE_SECONDS}", f"--lag={_LAG_SECONDS}", *more]
    auditor = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HACK)},
    )
    assert auditor.stderr is not None
    try:
        assert auditor.stderr.readline().strip() == "auditing"
        yield
        auditor.send_signal(signal.SIGTERM)
        out, _ = auditor.communicate(timeout=_END_SECONDS)
        if violations := json.loads(out)["violations"]:
            raise AssertionError(f"the auditor has seen {violations}")
    finally:
        auditor.kill()
        auditor.wait()
