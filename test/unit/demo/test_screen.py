"""Lines come out as they went in, however narrow the terminal is."""

import io
import time

import pytest
from rich.console import Console

from demo.screen import Check, Screen, Timeline, changes

LONG = "tfjob-controller run --kubeconfig /a/path/that/is/long [with brackets] :and: 1.5 numbers"


def test_nothing_is_folded_nor_taken_for_markup() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=20, highlight=False))
    screen.step(LONG)
    screen.detail(LONG)
    with screen.command(LONG):
        screen.output(LONG + "\n")
    screen.check(Check(True, LONG))
    screen.error(LONG)
    said = [f"==> {LONG}", f"    {LONG}", f"$ {LONG}", LONG, "", f"✓ {LONG}", f"error: {LONG}"]
    assert out.getvalue().splitlines() == said


@pytest.mark.parametrize(
    ("before", "now", "lines"),
    [
        pytest.param({}, {"j": "phase -, state -"}, ["j: phase -, state -"], id="all is new at first"),
        pytest.param({"a": "x", "b": "y"}, {"a": "x", "b": "z"}, ["b: z"], id="only what changed"),
        pytest.param({"a": "x"}, {"a": "x"}, [], id="nothing changed, nothing said"),
        pytest.param({"a": "x", "b": "y"}, {"a": "x"}, ["b: removed"], id="a removed fact is reported"),
        pytest.param({"": "x"}, {"": "y"}, ["y"], id="a fact without a subject"),
    ],
)
def test_a_line_for_each_change(before: dict[str, str], now: dict[str, str], lines: list[str]) -> None:
    assert changes(before, now) == lines


def test_a_timeline_shows_the_seconds_and_only_what_changed() -> None:
    out = io.StringIO()
    timeline = Timeline(Screen(Console(file=out, width=80)), began=time.monotonic() - 12)
    assert [timeline.update({"job": state}) for state in ("Running", "Running", "Done")] == [True, False, True]
    assert out.getvalue().splitlines() == [" 12.0 s  job: Running", " 12.0 s  job: Done"]
