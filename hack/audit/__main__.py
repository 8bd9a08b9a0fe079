"""`python -m audit --kubeconfig PATH`: watches pods, nodes and gangs until SIGTERM, and says what it saw.

One JSON line on standard output at the end: what was counted, and `violations` (rule, subject, text, time). Exit code
1 if there are any. Each violation is also a line on standard error when it is found. It shares no code with the
gang scheduler: own client, own watches, own reading of objects, own rules (audit.core).

With `--share-of-machine`, or AUDIT_SHARE_OF_MACHINE in the environment, the deadlines count only the time that a busy
machine has given to one of the programs that want to run (audit.machinetime): for tests, which say nothing of speed.

SIGUSR1 says that no gang scheduler works now, or can read the cluster (`Audit.outage`); whoever breaks one on purpose
sends it every second.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import time
from collections.abc import Sequence

from audit.core import Audit, Limits, Violation
from audit.flags import Flag
from audit.machinetime import LostTime
from audit.order import Event, Order
from audit.watches import Watches
from localcluster.api import Api

READY = "auditing"
_TICK_SECONDS = 0.25
_POLL_SECONDS = 0.05
_LIST_SECONDS = 60.0
_DEFAULT_LAG_SECONDS = 1.0


class Auditor:
    """The rules with watches and a clock. `run` returns after `stop` was set, with everything seen until then."""

    def __init__(
        self, api: Api, limits: Limits, stop: Flag, lag_seconds: float, lost_time: LostTime | None = None
    ) -> None:
        """`lag_seconds`: one watch may be so much later than another. What is lost by `lost_time` does not count."""
        self._watches = Watches(api)
        self._order = Order(lag_seconds)
        self._lag_seconds = lag_seconds
        self._audit = Audit(limits)
        self._lost_time = lost_time
        self._stop = stop
        self._shown = 0
        self._shown_races = 0
        self._ticked_at = 0.0
        self._is_out = Flag()

    def tell_outage(self) -> None:
        """From a signal handler."""
        self._is_out.set()

    def run(self) -> dict[str, object]:
        """Raises TimeoutError if the cluster cannot be read."""
        began = time.time()
        self._watches.start()
        try:
            self._seed(began)
            print(READY, file=sys.stderr, flush=True)
            while not self._stop.is_set:
                time.sleep(_POLL_SECONDS)
                self._work(time.time())
        finally:
            # What has happened until now is on its way for a moment.
            time.sleep(self._lag_seconds)
            self._watches.stop()
        self._work(time.time() + self._lag_seconds)
        counts = {"seconds": round(time.time() - began, 1), "late": self._order.late, "gaps": self._watches.gaps}
        return {**counts, **self._audit.report()}

    def _seed(self, began: float) -> None:
        while not (self._watches.is_listed or self._stop.is_set):
            if time.time() - began > _LIST_SECONDS:
                raise TimeoutError(f"cannot read the cluster: {', '.join(self._watches.problems)}")
            time.sleep(_POLL_SECONDS)
        for event in self._arrived():
            self._audit.seed(event.kind, event.change, event.obj, event.at)

    def _work(self, now: float) -> None:
        for event in self._arrived():
            self._order.add(event)
        if self._is_out.take():
            self._audit.outage(now)
        for event in self._order.due(now):
            self._audit.event(event.kind, event.change, event.obj, event.at)
        if now - self._ticked_at >= _TICK_SECONDS:
            self._ticked_at = now
            if self._lost_time is not None:
                self._audit.lost(self._lost_time.since_last_look(now))
            self._audit.tick(now - self._lag_seconds)
        self._shown = _show(self._audit.violations, self._shown)
        self._shown_races = _show(self._audit.races, self._shown_races, "a race: ")

    def _arrived(self) -> list[Event]:
        found: list[Event] = []
        try:
            while True:
                found.append(self._watches.events.get_nowait())
        except queue.Empty:
            return found


def _show(found: Sequence[Violation], shown: int, word: str = "") -> int:
    """Those that are new; how many there are now."""
    for each in found[shown:]:
        print(f"{word}{each.rule}: {each.subject}: {each.text}", file=sys.stderr, flush=True)
    return len(found)


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns the exit code."""
    defaults = Limits()
    parser = argparse.ArgumentParser(prog="python -m audit", description="Watches gangs and says what went wrong.")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--bind-deadline", type=float, default=defaults.bind_deadline_seconds, metavar="SECONDS")
    parser.add_argument("--fit-grace", type=float, default=defaults.fit_grace_seconds, metavar="SECONDS")
    parser.add_argument("--starvation-timeout", type=float, default=defaults.starvation_timeout_seconds)
    parser.add_argument("--race", type=float, default=defaults.race_seconds, metavar="SECONDS")
    is_share = bool(os.environ.get("AUDIT_SHARE_OF_MACHINE"))
    parser.add_argument("--share-of-machine", action="store_true", default=is_share)
    parser.add_argument("--lag", type=float, default=_DEFAULT_LAG_SECONDS, metavar="SECONDS")
    given = parser.parse_args(argv)
    limits = Limits(given.bind_deadline, given.fit_grace, given.starvation_timeout, given.race)
    stop = Flag()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    lost_time = LostTime() if given.share_of_machine else None
    auditor = Auditor(Api.from_kubeconfig(given.kubeconfig), limits, stop, given.lag, lost_time)
    signal.signal(signal.SIGUSR1, lambda *_: auditor.tell_outage())
    report = auditor.run()
    print(json.dumps(report), flush=True)
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
