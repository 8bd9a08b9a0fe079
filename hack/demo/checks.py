"""Checks at the end of the demo: each has a sentence, and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# 1 master, 1 worker, 2 parameter servers: task n computes 2n + 3(n+1), and 8 + 13 + 18 + 23 = 62.
RIGHT_SUM = "sum over 4 replicas: 62"
ALL_WORKERS = "1 of 1 workers computed the same"


@dataclass(frozen=True, slots=True)
class Check:
    holds: bool
    text: str


def check_job(job: Mapping[str, Any], wanted: str = "Succeeded") -> Check:
    """Checks that the job is Done, and in this state."""
    status = job.get("status", {})
    phase, state = status.get("phase", ""), status.get("state", "")
    reason = f": {status['reason']}" if status.get("reason") else ""
    return Check(phase == "Done" and state == wanted, f"the job ended {phase or '-'}/{state or '-'}{reason}")


def check_log(log: str) -> Check:
    holds = RIGHT_SUM in log and ALL_WORKERS in log
    return Check(holds, f"the master's log {'holds' if holds else 'lacks'} the right numbers ({RIGHT_SUM})")


def check_spread(nodes_used: Sequence[str], nodes_wanted: int) -> Check:
    used = sorted(set(nodes_used))
    return Check(
        len(used) >= nodes_wanted, f"its pods ran on {len(used)} node{'s' * (len(used) != 1)}: {', '.join(used)}"
    )
