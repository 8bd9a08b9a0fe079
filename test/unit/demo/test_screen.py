"""Lines come out as they went in, however narrow the terminal is."""

import io

from rich.console import Console

from demo.screen import Check, Screen

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
