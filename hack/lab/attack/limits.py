"""A program in a control group with a memory limit, like a container: the kernel kills a process that exceeds it.

If control groups cannot be created (no root, a container), the peak of the resident set is compared with the limit.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bench import usage
from localcluster import cgroups, process
from localcluster.errors import LocalClusterError
from localcluster.process import Identity

MIB = 1 << 20


@dataclass(slots=True)
class Limited:
    """A process whose memory is limited. `group` is empty if there are no control groups."""

    name: str
    identity: Identity
    limit_bytes: int
    group: str = ""
    _peak_bytes: int = field(default=0, init=False)

    @property
    def is_alive(self) -> bool:
        return process.is_alive(self.identity)

    @property
    def kills(self) -> int:
        """How often the kernel has killed a process of the group."""
        return cgroups.memory_kills(self.group) if self.group else 0

    @property
    def peak_bytes(self) -> int:
        """The largest observed resident set, also after the end of the process."""
        with contextlib.suppress(OSError, StopIteration):
            self._peak_bytes = max(self._peak_bytes, usage.peak_resident_bytes(self.identity.pid))
        return self._peak_bytes

    @property
    def cpu_seconds(self) -> float:
        """The CPU time so far; 0 after the end of the process."""
        with contextlib.suppress(OSError, IndexError):
            return usage.cpu_seconds(self.identity.pid)
        return 0.0

    def figures(self) -> dict[str, Any]:
        return {
            "limit_mb": round(self.limit_bytes / 1e6),
            "is_limited_by_kernel": bool(self.group),
            "peak_resident_mb": round(self.peak_bytes / 1e6, 1),
            "kills": self.kills,
        }


@contextlib.contextmanager
def limited(name: str, identity: Identity | None, limit_bytes: int) -> Iterator[Limited]:
    """Limits the process; the group and its remaining processes end with the block."""
    if identity is None:
        raise LocalClusterError(f"{name} does not run")
    group = f"attack-{os.getpid()}-{name}"
    try:
        cgroups.make(group)
        cgroups.limit_memory(group, limit_bytes, identity.pid)
    except (OSError, LocalClusterError):
        yield Limited(name, identity, limit_bytes)
        return
    try:
        yield Limited(name, identity, limit_bytes, group)
    finally:
        cgroups.remove(group)
