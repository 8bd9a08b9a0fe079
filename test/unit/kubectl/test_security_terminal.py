"""What strangers wrote, on a person's terminal: termination messages, events, reasons, errors, logs."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tfjob_controller.client.reader import TableColumn, TablePage
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kubectl.arguments import parse
from tfjob_controller.kubectl.command import JSON, YAML
from tfjob_controller.kubectl.commands.follow import print_replicas
from tfjob_controller.kubectl.commands.jobtable import GrowingTable, JobList, TableLayout
from tfjob_controller.kubectl.output import (
    escape_terminal_controls,
    print_error,
    print_notice,
    print_value,
    text_after_carriage_return,
    to_yaml,
)
from tfjob_controller.util.commandline import UsageError
from tfjob_controller.util.terminal import print_line, print_text

# Clear the screen, set the title, 8-bit codes, text that runs backwards, a line that is none.
HARM = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202etxt\u2028\nerror: forged"


class Lines:
    """One replica's log."""

    def __init__(self, *lines: bytes) -> None:
        self._lines = lines

    def lines(self, replica_id: str) -> Iterator[bytes]:
        yield from self._lines


class Terminal(io.TextIOWrapper):
    def __init__(self, *, is_one: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")
        self._is_one = is_one

    def isatty(self) -> bool:
        return self._is_one

    @property
    def bytes(self) -> bytes:
        return self.buffer.getvalue()  # type: ignore[attr-defined] # it stands on a BytesIO


def is_harmless(text: str) -> bool:
    return all(each.isprintable() or each == "\n" for each in text)


def test_errors_and_notices_are_one_line_each_and_do_not_control_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_error(HARM)
    print_notice(HARM)
    shown = capsys.readouterr().err
    assert is_harmless(shown)
    assert len(shown.splitlines()) == 2


@pytest.mark.parametrize("output", [JSON, YAML])
def test_what_is_for_programs_rules_no_terminal_and_means_the_same(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import yaml

    print_value({"message": HARM, HARM: 1}, output)
    shown = capsys.readouterr().out
    assert is_harmless(shown)
    assert (json.loads if output == JSON else yaml.safe_load)(shown) == {"message": HARM, HARM: 1}
    assert yaml.safe_load(to_yaml(HARM)) == HARM


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        pytest.param(b"\x1b[1;31mred", b"\x1b[1;31mred\x1b[0m", id="colours pass, and end with the line"),
        pytest.param(b"\x1b[38;5;8mgrey", b"\x1b[38;5;8mgrey\x1b[0m", id="the colour 8 is none that conceals"),
        pytest.param(b"\x1b[31;8mhidden", rb"\x1b[31;8mhidden", id="concealed text"),
        pytest.param("50 %\r100 % über\t✓".encode(), "50 %\r100 % über\t✓".encode(), id="progress passes"),
        pytest.param(b"\x1b[2J\x1b]0;t\x07", rb"\x1b[2J\x1b]0;t\x07", id="other sequences do not"),
        pytest.param("\x9b2J".encode(), rb"\x9b2J", id="nor those of eight bits"),
        pytest.param("\u202eb\u2066\u2028".encode(), rb"\u202eb\u2066\u2028", id="nor text that runs backwards"),
        pytest.param(b"a\x08\x00\x7f\x0e", rb"a\x08\x00\x7f\x0e", id="nor control characters"),
        pytest.param(b"\xff\x9b bytes", b"\xff\x9b bytes", id="bytes of no encoding are nothing to a terminal"),
        pytest.param(b"\x1b", rb"\x1b", id="an end in the middle"),
    ],
)
def test_of_a_log_only_colours_reach_a_terminal(line: bytes, shown: bytes) -> None:
    assert escape_terminal_controls(line) == shown


def printed(lines: Any, prefixes: dict[str, bytes], *, is_terminal: bool) -> bytes:
    out = Terminal(is_one=is_terminal)
    print_replicas(lines, ["worker-0"], prefixes, out, follow=False)
    return out.bytes


def test_a_log_in_a_pipe_is_as_it_was_written() -> None:
    raw = b"\x1b[2J\r\xff\x00"
    assert printed(Lines(raw), {}, is_terminal=False) == raw + b"\n"
    assert printed(Lines(raw), {"worker-0": b"[worker-0] "}, is_terminal=False) == b"[worker-0] " + raw + b"\n"


def test_no_line_writes_over_the_prefix_that_says_whose_it_is() -> None:
    forged = Lines(b"1 %\r[master-0] all is well", b"windows\r", b"\x1b[1A[master-0] forged")
    shown = printed(forged, {"worker-0": b"[worker-0] "}, is_terminal=True)
    assert shown.splitlines() == [
        b"[worker-0] [master-0] all is well",
        b"[worker-0] windows",
        rb"[worker-0] \x1b[1A[master-0] forged",
    ]
    assert text_after_carriage_return(b"a\rb\r\r") == b"b"


def test_titles_of_a_watched_table_are_shown_in_one_line() -> None:
    page = TablePage("Table", [TableColumn(f"Name{HARM}")], [])
    (line,) = GrowingTable([JobList(TFJOB, [page])], TableLayout(False)).lines()
    assert is_harmless(line)


def test_the_printer_shows_what_is_not_printable_and_keeps_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(HARM)
    print_text(f"a\tb\n{HARM}")
    print_value({"a": "soft\xad \U000e0001 \u200d"}, JSON)
    shown = capsys.readouterr().out
    assert is_harmless(shown.replace("\t", " "))
    first, second, *_ = shown.splitlines()
    assert first == r"\x1b[2J\x1b]0;owned\x07\x9b31m\u202etxt\u2028\nerror: forged"
    assert second == "a\tb"
    assert json.loads(shown[shown.index("{") :]) == {"a": "soft\xad \U000e0001 \u200d"}


def test_the_lint_finds_what_prints_beside_the_printer() -> None:
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-m", "ruff", "check", "--output-format=concise"]
    command += ["--stdin-filename", "src/tfjob_controller/kubectl/commands/new.py", "-"]
    source = 'import sys\n\nprint("a")\nsys.stdout.write("a")\n'
    found = subprocess.run(command, input=source, cwd=root, capture_output=True, text=True, check=False).stdout
    assert "T201" in found
    assert "TID251" in found


def test_a_variable_that_cannot_be_read_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    """Who forgets the name has typed the secret alone."""
    with pytest.raises((SystemExit, UsageError)) as refused:
        parse(["submit", "job", "--image", "x", "--env", "s3cr3t"])
    shown = capsys.readouterr()
    assert "s3cr3t" not in f"{shown.out}{shown.err}{refused.value}"
