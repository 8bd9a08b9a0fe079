"""What stands before the lines of each replica, and in which colour."""

from __future__ import annotations

import io

import pytest

from tfjob_controller.kubectl.logprinter import line_prefixes
from tfjob_controller.kubectl.output import is_coloured


class Terminal(io.StringIO):
    """A text stream of ours that says it is one."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("out", "variables", "expected"),
    [
        pytest.param(Terminal(), {}, True, id="terminal"),
        pytest.param(io.StringIO(), {}, False, id="pipe"),
        pytest.param(Terminal(), {"NO_COLOR": "1"}, False, id="NO_COLOR"),
        pytest.param(Terminal(), {"NO_COLOR": ""}, True, id="NO_COLOR that is empty"),
        pytest.param(Terminal(), {"TERM": "dumb"}, False, id="a terminal without colours"),
    ],
)
def test_only_a_terminal_gets_colours(
    out: io.StringIO, variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_coloured(out) is expected


def test_neighbours_have_different_colours_and_each_line_ends_them() -> None:
    found = line_prefixes([f"worker-{index}" for index in range(20)], coloured=True)
    assert found["worker-0"] != found["worker-1"].replace(b"1", b"0")
    assert all(each.endswith(b"\x1b[0m ") for each in found.values())
    assert len({each.partition(b"[worker")[0] for each in found.values()}) == 8
    assert line_prefixes(["worker-0"], coloured=False) == {"worker-0": b"[worker-0] "}
