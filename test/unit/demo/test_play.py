"""How a demo ends: by its checks, by an error in one line, or by Ctrl-C."""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console

from demo.__main__ import SCENES
from demo.play import INTERRUPTED, exit_code
from demo.screen import Check, Screen
from demo.stage import ROOT
from localcluster.errors import LocalClusterError


@pytest.fixture(autouse=True)
def _signals_restored() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def raising(error: BaseException) -> Callable[[], bool]:
    def run() -> bool:
        raise error

    return run


@pytest.mark.parametrize(
    ("run", "code", "output"),
    [
        pytest.param(lambda: True, 0, "", id="all checks hold"),
        pytest.param(lambda: False, 1, "", id="a check does not hold"),
        pytest.param(raising(LocalClusterError("no node")), 1, "error: no node\n", id="an error"),
        pytest.param(
            raising(KeyboardInterrupt()),
            INTERRUPTED,
            "==> interrupted: stopping everything that the demo started\n",
            id="Ctrl-C",
        ),
    ],
)
def test_the_exit_code_says_how_a_demo_ended(run: Callable[[], bool], code: int, output: str) -> None:
    printed = io.StringIO()
    assert exit_code(Screen(Console(file=printed, width=80)), run) == code
    assert printed.getvalue() == output


def test_each_scene_is_what_a_target_of_make_plays() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name, scene in SCENES.items():
        assert scene.target == "-".join(filter(None, ("demo", name)))
        assert re.search(rf"^{scene.target}: .*\n\t@\$\(PY\) -m demo {name}".rstrip(), makefile, re.MULTILINE), name


def test_all_checks_are_printed_also_after_one_that_does_not_hold() -> None:
    printed = io.StringIO()
    screen = Screen(Console(file=printed, width=80))
    assert not screen.checks([Check(False, "first"), Check(True, "second")])
    assert printed.getvalue() == "✗ first\n✓ second\n"
