"""`python -m audit --kubeconfig PATH`: watches pods, nodes and gangs until SIGTERM, and reports violations.

At the end it prints one JSON line to standard output: counts, and `violations` (rule, subject, text, time). The exit
code is 1 if there are any. Each violation is also printed to standard error when it is found. The auditor shares no
code with the gang scheduler: it has its own client, watches, parsers and rules (audit.core).

With `--share-of-machine`, or with AUDIT_SHARE_OF_MACHINE in the environment, deadlines count only the share of time
that a busy machine gives to one runnable thread (audit.machinetime). This is for tests that do not measure speed.

SIGUSR1 reports that no gang scheduler runs or can read the cluster (`Audit.outage`). A program that causes an outage on
purpose sends it every second.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import fields

from audit.core import Audit, Limits, Violation
from audit.flags import Signals
from audit.machinetime import LostTime
from audit.order import Order
from audit.watches import Watches
from localcluster.api import Api

READY = "auditing"
_TICK_SECONDS = 0.25
_POLL_SECONDS = 0.05
_DEFAULT_LAG_SECONDS = 1.0


class Auditor:
    """The rules with watches and a clock. `run` returns after a signal, once all earlier events are judged."""

    def __init__(
        self, api: Api, limits: Limits, signals: Signals, lag_seconds: float, lost_time: LostTime | None = None
    ) -> None:
        """`lag_seconds` is the largest delay between two watches. Time from `lost_time` counts for no deadline."""
        self._watches = Watches(api)
        self._order = Order(lag_seconds)
        self._lag_seconds = lag_seconds
        self._audit = Audit(limits)
        self._lost_time = lost_time
        self._signals = signals
        self._shown = 0
        self._shown_races = 0
        self._ticked_at = 0.0

    def run(self) -> dict[str, object]:
        """Watches until a signal and returns the report. Raises TimeoutError if the cluster cannot be read."""
        began = time.time()
        self._watches.start(self._signals.stop)
        try:
            for event in self._watches.arrived():
                self._audit.seed(event.kind, event.change, event.obj, event.at)
            print(READY, file=sys.stderr, flush=True)
            while not self._signals.stop.is_set:
                time.sleep(_POLL_SECONDS)
                self._work(time.time())
        finally:
            # The watches deliver earlier events with a delay.
            time.sleep(self._lag_seconds)
            self._watches.stop()
        self._work(time.time() + self._lag_seconds)
        counts = {"seconds": round(time.time() - began, 1), "late": self._order.late, "gaps": self._watches.gaps}
        return {**counts, **self._audit.report()}

    def _work(self, now: float) -> None:
        for event in self._watches.arrived():
            self._order.add(event)
        if self._signals.outage.take():
            self._audit.outage(now)
        for event in self._order.due(now):
            self._audit.event(event.kind, event.change, event.obj, event.at)
        if now - self._ticked_at >= _TICK_SECONDS:
            self._ticked_at = now
            if self._lost_time is not None:
                self._audit.lost(self._lost_time.since_last_sample(now))
            self._audit.tick(now - self._lag_seconds)
        self._shown = _show(self._audit.violations, self._shown)
        self._shown_races = _show(self._audit.races, self._shown_races, "race: ")


def _show(violations: Sequence[Violation], shown: int, prefix: str = "") -> int:
    """Prints the violations that are new; returns how many there are now."""
    for new in violations[shown:]:
        print(f"{prefix}{new.rule}: {new.subject}: {new.text}", file=sys.stderr, flush=True)
    return len(violations)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m audit", description="Watches gangs and reports violations.")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--lag", type=float, default=_DEFAULT_LAG_SECONDS, metavar="SECONDS")
    is_shared = bool(os.environ.get("AUDIT_SHARE_OF_MACHINE"))
    parser.add_argument("--share-of-machine", action="store_true", default=is_shared)
    # A flag for each limit, such as --bind-deadline.
    for limit in fields(Limits):
        flag = limit.name.removesuffix("_seconds").replace("_", "-")
        parser.add_argument(f"--{flag}", type=float, default=limit.default, dest=limit.name, metavar="SECONDS")
    given = parser.parse_args(argv)
    limits = Limits(**{limit.name: getattr(given, limit.name) for limit in fields(Limits)})
    signals = Signals()
    signals.listen()
    lost_time = LostTime() if given.share_of_machine else None
    report = Auditor(Api.from_kubeconfig(given.kubeconfig), limits, signals, given.lag, lost_time).run()
    print(json.dumps(report), flush=True)
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
