"""Stops a stack when the process that owns it has ended for any reason.

Runs as `python -m localcluster.guard FOLDER` in a session of its own, so that neither Ctrl-C nor the death of a process
group ends it. It waits on the owner's pidfd without polling.
"""

from __future__ import annotations

import sys
from pathlib import Path

from localcluster import process, stack, state

_A_DAY_SECONDS = 86400.0  # poll(2) cannot wait much longer


def main() -> None:
    folder = Path(sys.argv[1])
    found = state.read(folder)
    if found is None or found.owner is None:
        return
    while process.wait_gone([found.owner], _A_DAY_SECONDS):
        pass
    stack.down(folder)


if __name__ == "__main__":
    main()
