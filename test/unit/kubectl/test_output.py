"""What is printed: whole where it is piped, folded in one column where a person reads, harmless in any case."""

from __future__ import annotations

import io

import pytest

from tfjob_controller.client.text import one_line
from tfjob_controller.kubectl.output import Screen, is_coloured

LONG = "word " * 100


def printed(width: int | None, *row: str) -> str:
    out = io.StringIO()
    Screen(out, width=width).table(["Name", "Message"], [row])
    return out.getvalue()


def test_a_pipe_gets_every_row_on_one_line_without_padding() -> None:
    lines = printed(None, "worker-0", LONG).splitlines()
    assert lines == [f"NAME{' ' * 6}MESSAGE", f"worker-0  {LONG.strip()}"]


def test_a_terminal_too_narrow_for_that_gets_whole_lines_to_fold_itself() -> None:
    name = "a-name-that-takes-more-than-half-of-the-terminal"
    assert printed(60, name, LONG).splitlines()[1] == f"{name}  {LONG.strip()}"


def test_a_terminal_folds_the_last_column_alone() -> None:
    lines = printed(60, "worker-with-a-long-name-0", LONG).splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert lines[1].startswith("worker-with-a-long-name-0 ")
    assert " ".join(lines[1:]).split().count("word") == 100


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\x1b[2Jgone", "\\x1b[2Jgone", id="terminal codes"),
        pytest.param("two\nlines\tand\r\ntabs", "two lines and tabs", id="line breaks"),
        pytest.param("\x9b31m", "\\x9b31m", id="codes of eight bits"),
        pytest.param("a \u202e b", "a \\u202e b", id="reversed text"),
        pytest.param("[bold]über[/] :smile:", "[bold]über[/] :smile:", id="markup stays as it is"),
    ],
)
def test_what_a_program_wrote_cannot_rule_the_terminal(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert printed(None, "a", text).splitlines()[1] == f"a     {shown}"


def test_an_empty_cell_is_visible_and_an_empty_field_is_left_out() -> None:
    assert printed(None, "a", "").splitlines()[1] == "a     -"
    out = io.StringIO()
    Screen(out).fields({"Phase": "Running", "Reason": ""})
    assert out.getvalue() == "Phase  Running\n"


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
