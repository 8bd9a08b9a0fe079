"""`make attack`: all attacks of a tenant on controller, progress server, gang scheduler and dashboard at once.

It has its own control plane with fake nodes; the programs run as shipped, with leader election (`stage`), and must
keep to their memory limits. A tenant who may edit one namespace writes the worst jobs, Gangs and pods that the API
server accepts (`tenant`), opens connections to all ports (`connections`), reports (`reports`), and uses the dashboard
(`dashboard`). Another tenant creates a small job every 10 s, has a job that runs and reports all the time, and has the
dashboard open. Progress goes to standard error; the last line on standard output is JSON with all figures. Exit code 1
if a program ended, used more memory than its limit, lost its lease or failed a probe, or if a job of the other tenant
started late, was evicted, had a report refused or did not succeed; the lines before it name the violated limits.

ATTACK_SECONDS  how long, 600
ATTACK_EVERY    seconds from one job of the other tenant to the next, 10
ATTACK_START    seconds in which such a job must have started, 5
ATTACK_PROBE    seconds in which a probe must be answered, 1
ATTACK_SIZE     share of the attackers, 1; 0.05 for a small run
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import Any

from bench.usage import cpu_seconds
from lab import command
from lab.attack import connections, dashboard, reports, tenant, victim
from lab.attack.connections import Target
from lab.attack.helpers import running_helpers
from lab.attack.monitor import ApiserverMonitor, Monitor
from lab.attack.stage import CPUS, HOSTILE, OTHER, TENANTS, Stage, open_stage, token_of, tokens_of_account
from lab.attack.tenant import Amounts
from lab.command import Interval, Patience, Settings, progress, variable
from lab.injection import REQUEST_ERRORS
from lab.submitted import SubmittedJobs
from localcluster.api import Api
from localcluster.programs import APISERVER

NODES = 100
# Of one account.
TOKENS = 200
_LEAST_NODES = 6
_POLL_SECONDS = 0.1
_REPORT_SECONDS, _LOUD_SECONDS = 2.0, 0.05
_SHOW_SECONDS = 15.0
# Time for the jobs that still run when the attack ends, also on a busy machine.
_PATIENCE_SECONDS = 240.0
# How much longer the attack goes on if a busy machine has kept some attackers from writing.
_EXTRA_SECONDS = 240.0


@dataclass(frozen=True)
class AttackSettings(Settings):
    seconds: float = variable("ATTACK_SECONDS", 600.0, may_be_zero=False)
    every_seconds: float = variable("ATTACK_EVERY", 10.0, may_be_zero=False)
    start_seconds: float = variable("ATTACK_START", 5.0, may_be_zero=False)
    probe_seconds: float = variable("ATTACK_PROBE", 1.0, may_be_zero=False)
    size: float = variable("ATTACK_SIZE", 1.0, may_be_zero=False)

    def scaled(self, count: int) -> int:
        return max(1, round(count * self.size))

    @property
    def nodes(self) -> int:
        return max(_LEAST_NODES, self.scaled(NODES))

    @property
    def amounts(self) -> Amounts:
        scaled = {name: self.scaled(count) for name, count in dataclasses.asdict(Amounts()).items()}
        return Amounts(**{**scaled, "cpus": self.nodes * CPUS // 2})


def play(stage: Stage, settings: AttackSettings) -> dict[str, Any]:
    """Runs the attack and returns the figures."""
    jobs = SubmittedJobs(Api.from_kubeconfig(stage.plane.kubeconfig_of(TENANTS[OTHER])), OTHER)
    monitors = [Monitor(stage.api, program) for program in stage.programs]
    apiserver = ApiserverMonitor(stage.api)
    person = dashboard.Person(stage.dashboard_url, token_of(stage.plane, TENANTS[OTHER]))
    tokens = tokens_of_account(stage.api, HOSTILE, settings.scaled(TOKENS))
    with running_helpers() as attackers, contextlib.ExitStack() as open_:
        long = reports.LongJob(stage.api, OTHER, "127.0.0.6", _REPORT_SECONDS)
        loud = reports.LongJob(stage.api, HOSTILE, connections.PODS[0], _LOUD_SECONDS / settings.size)
        for job in (long, loud):
            open_.enter_context(job)
        kubeconfig, is_complete = stage.plane.kubeconfig_of(TENANTS[HOSTILE]), attackers.event()
        attackers.start("tenant", tenant.attack, kubeconfig, settings.amounts, is_complete)
        targets = [
            *(Target(port) for program in stage.programs for port in program.plain.values()),
            *(Target(port, is_tls=True) for program in stage.programs for port in program.tls),
        ]
        counts = (settings.scaled(connections.COUNT), settings.scaled(connections.SILENT))
        attackers.start("connections", connections.attack, targets, *counts)
        attackers.start("reports", reports.forge, long.url, settings.size)
        open_.enter_context(person)
        attackers.start("dashboard", dashboard.attack, stage.dashboard_url, tokens, settings.scaled(dashboard.STREAMS))
        for monitor in (*monitors, apiserver):
            open_.enter_context(monitor)
        jobs.start()
        open_.callback(jobs.stop)
        begin = time.monotonic()
        apiserver_seconds = _apiserver_seconds(stage)
        _drive(jobs, monitors, is_complete, settings, begin)
        seconds = time.monotonic() - begin
        apiserver_seconds = _apiserver_seconds(stage) - apiserver_seconds
        load, patience = os.getloadavg(), Patience(_PATIENCE_SECONDS)
        while jobs.unfinished and not patience.is_over(None):
            time.sleep(_POLL_SECONDS)
        programs = {monitor.name: monitor.figures(seconds) for monitor in monitors}
        broken = long.broken(settings.start_seconds)
        for monitor in monitors:
            broken += monitor.broken(settings.probe_seconds)
        hostile = attackers.end()
    broken += person.broken(settings.start_seconds)
    broken += [f"the helper process {name} ended early" for name, figures in hostile.items() if not figures]
    broken += victim.broken(jobs, settings.start_seconds)
    return {
        "seconds": round(seconds),
        "size": settings.size,
        "nodes": settings.nodes,
        "load": round(load[0], 1),
        "apiserver_cpu_cores": round(apiserver_seconds / seconds, 2),
        "apiserver_max_seconds": round(apiserver.max_seconds, 1),
        **programs,
        "dashboard": programs["dashboard"] | person.figures(),
        "reports": long.figures(),
        "other": victim.figures(jobs),
        "hostile": {name: count for figures in hostile.values() for name, count in figures.items()},
        "hostile_reports": loud.figures(),
        "broken": broken,
    }


def _apiserver_seconds(stage: Stage) -> float:
    identity = stage.plane.state().programs[APISERVER].identity
    return cpu_seconds(identity.pid) if identity is not None else 0.0


def _drive(
    jobs: SubmittedJobs, monitors: Sequence[Monitor], is_complete: Event, settings: AttackSettings, begin: float
) -> None:
    """Creates jobs on schedule, for longer if the attack is not complete.

    Returns early when a program has ended or has exceeded its memory limit.
    """
    number, shows = 0, Interval(_SHOW_SECONDS)
    longest = settings.seconds + _EXTRA_SECONDS
    while (seconds := time.monotonic() - begin) < (settings.seconds if is_complete.is_set() else longest):
        if not all(monitor.is_alive and monitor.is_within_limit for monitor in monitors):
            return
        if seconds >= number * settings.every_seconds:
            # A job that is refused stays unfinished.
            with contextlib.suppress(*REQUEST_ERRORS):
                jobs.submit(victim.small_job(number))
            number += 1
        if shows.is_due():
            times = jobs.start_seconds.values()
            other = f"{number} jobs, {len(times)} started, after {max(times, default=0.0):.1f} s at most"
            figures = {monitor.name: monitor.figures(max(seconds, 1.0)) for monitor in monitors}
            programs = ", ".join(f"{name} {figure['peak_resident_mb']:.0f} MB" for name, figure in figures.items())
            progress(f"{seconds:5.0f} s  load {os.getloadavg()[0]:.1f}  {programs}; {other}")
        time.sleep(_POLL_SECONDS)


def run() -> bool:
    """Runs the command; returns whether all limits were kept."""
    settings = AttackSettings.of(os.environ)
    # kube-apiserver keeps some gigabytes of what the tenant wrote lately, and with the GOGC of localcluster five times
    # as much.
    os.environ.setdefault("GOMEMLIMIT", "12GiB")
    with open_stage(settings.nodes) as stage:
        figures = play(stage, settings)
        for line in figures["broken"]:
            progress(f"broken: {line}")
        if figures["broken"]:
            progress(f"logs of the programs: {command.keep_logs('attack', stage.plane.logs)}")
    command.show_result(figures)
    return not figures["broken"]


if __name__ == "__main__":
    sys.exit(command.main("attack", __doc__, run))
