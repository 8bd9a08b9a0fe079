"""The auditor of gangs (hack/audit) beside a test, which must not have seen any violation at the end."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path

from helpers.auditorprocess import auditor_process

# A test may start and end the gang scheduler, which takes time. On a busy machine, only the share of time that one
# program gets is counted.
_FIT_GRACE_SECONDS = 45.0
_LAG_SECONDS = 0.4
_END_SECONDS = 60.0


@contextlib.contextmanager
def audited(kubeconfig: Path, *more: str) -> Iterator[None]:
    """Fails with the violations that the auditor has seen, unless the block fails itself.

    `more` are the auditor's flags.
    """
    flags = (
        f"--kubeconfig={kubeconfig}",
        f"--fit-grace={_FIT_GRACE_SECONDS}",
        f"--lag={_LAG_SECONDS}",
        "--share-of-machine",
        *more,
    )
    with auditor_process("audit", *flags) as auditor:
        yield
        auditor.send_signal(signal.SIGTERM)
        out, _ = auditor.communicate(timeout=_END_SECONDS)
        if violations := json.loads(out)["violations"]:
            raise AssertionError(f"the auditor has seen {violations}")
