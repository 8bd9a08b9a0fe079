"""The signals that the auditor of jobs handles."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from audit.flags import Signals
from audit.jobs.__main__ import main
from audit.jobs.auditor import paths_in
from audit.jobs.history import CHILDREN, GANGS, OWNERS, TFJOBS

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@pytest.fixture
def signals() -> Iterator[Signals]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signals = Signals()
    signals.listen()
    yield signals
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "is_stop"), [(signal.SIGTERM, True), (signal.SIGINT, True), (signal.SIGUSR1, False)]
)
def test_each_signal_sets_one_flag(signals: Signals, number: signal.Signals, is_stop: bool) -> None:
    os.kill(os.getpid(), number)
    assert (signals.stop.is_set, signals.outage.is_set) == (is_stop, not is_stop)


def test_an_outage_flag_is_cleared_when_it_is_read(signals: Signals) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    assert [signals.outage.take(), signals.outage.take()] == [True, False]


def test_every_kind_is_watched_everywhere_or_in_one_namespace() -> None:
    assert paths_in("").keys() == {*OWNERS, *CHILDREN}
    assert paths_in("")[TFJOBS] == "/apis/kubeflow.org/v1alpha1/tfjobs"
    assert paths_in("team")[GANGS] == "/apis/scheduling.kubeflow.org/v1alpha1/namespaces/team/gangs"


def test_a_missing_kubeconfig_is_reported_in_one_line(signals: Signals, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kubeconfig=/nowhere"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "audit.jobs: [Errno 2] No such file or directory: '/nowhere'\n"
