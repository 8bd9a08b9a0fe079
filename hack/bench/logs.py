"""`make bench-logs`: the controller's cost of following the logs of 100 jobs.

The follower runs in this process and reads over TLS from a server in another one (bench.logserver). The figure is the
CPU of this process, user and system, as a share of one core, once all logs are connected. Rounds of the three cases
alternate, so that they see the same machine; in the third case the follower has no logs to follow.

- `logs_followed_cpu`: each log has 100 lines a second, of 120 bytes, each in its own chunk and TLS record.
- `logs_silent_cpu`: the logs are followed and have no lines.

The syncs that process the values are not included: at most one write for each job in five seconds.
`notifications_per_second` is the number of notifications that cause them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench import logserver
from bench.report import ROUNDS, Reach, progress, report, size
from tfjob_controller.api.common.core import ContainerState, ContainerStatus, Pod, PodMeta, PodSpec, PodStatus, Running
from tfjob_controller.api.trainjob.types import DEFAULT_METRICS
from tfjob_controller.controller.logs.follower import LogFollower
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.http.responsestream import Connector
from tfjob_controller.util.clock import RealClock

LOGS = size(100, tiny=5)
LINES_PER_SECOND = size(100, tiny=20)
SECONDS = size(20, tiny=2)
REACH_PERCENT = 10.0
_LIMIT_SECONDS = 60.0


class Round(NamedTuple):
    """CPU in % of one core, the lines read per second, and the number of notifications."""

    cpu: float
    lines: float = 0.0
    notifications: int = 0


def running_pod(name: str) -> Pod:
    container = ContainerStatus("trainer", ready=True, state=ContainerState(running=Running()))
    meta = PodMeta(name=name, namespace="bench", uid=name)
    return Pod(meta, PodSpec(), PodStatus(phase="Running", container_statuses=(container,)))


def measured(kubeconfig: Path, logs: int, *, is_silent: bool) -> Round:
    """Follows so many logs for a while. Raises TimeoutError, and RuntimeError if not all lines were read."""
    clock = RealClock()
    follower = LogFollower(Connector(load_config(str(kubeconfig)), clock), lambda key: None, clock)
    follower.start()
    for number in range(logs):
        follower.follow(f"bench/{number}", str(number), running_pod(str(number)), "trainer", DEFAULT_METRICS)
    try:
        _wait(follower, logs, is_silent=is_silent)
        before, cpu, begin = follower.statistics(), time.process_time(), time.monotonic()
        time.sleep(SECONDS)
        cpu, seconds = time.process_time() - cpu, time.monotonic() - begin
        after = follower.statistics()
    finally:
        follower.stop(_LIMIT_SECONDS)
    if after.failures or after.jumps or after.open != logs:
        raise RuntimeError(f"not all logs were followed: {after}")
    lines = (after.bytes_read - before.bytes_read) / logserver.LINE_BYTES / seconds
    return Round(100.0 * cpu / seconds, lines, after.notifications - before.notifications)


def _wait(follower: LogFollower, logs: int, *, is_silent: bool) -> None:
    """Waits until all logs are connected and each has delivered lines, if it has any; then for two seconds."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    while follower.statistics().open < logs or not (is_silent or follower.statistics().notifications >= logs):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not connected: {follower.statistics()}")
        time.sleep(0.1)
    time.sleep(2.0)


def main() -> int:
    """Prints both figures. Returns 1 if one missed its target."""
    followed, silent, idle = list[Round](), list[Round](), list[Round]()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        for number in range(1, ROUNDS + 1):
            with logserver.running(Path(one), 0) as quiet:
                idle.append(measured(quiet, 0, is_silent=True))
                silent.append(measured(quiet, LOGS, is_silent=True))
            with logserver.running(Path(other), LINES_PER_SECOND) as busy:
                followed.append(measured(busy, LOGS, is_silent=False))
            found = f"{followed[-1].cpu:.3g} % at {followed[-1].lines:.0f} lines/s, silent {silent[-1].cpu:.3g} %"
            progress(f"round {number} of {ROUNDS}: {found}, nothing to follow {idle[-1].cpu:.3g} %")
    extra: dict[str, Any] = {"logs": LOGS, "idle": round(statistics.median(each.cpu for each in idle), 4)}
    lines = round(statistics.median(each.lines for each in followed))
    notifications = statistics.median(each.notifications for each in followed) / SECONDS
    reach, unit = Reach(max_value=REACH_PERCENT), "% of a core"
    values = [each.cpu for each in followed]
    ok = report(
        "logs_followed_cpu",
        unit,
        values,
        reach=reach,
        lines_per_second=lines,
        notifications_per_second=notifications,
        **extra,
    )
    ok &= report("logs_silent_cpu", unit, [each.cpu for each in silent], reach=Reach(max_value=0.1), **extra)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
