"""Fuzzing of what reads and shows text of programs: log lines, progress patterns, terminal output, completion."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import event, given
from hypothesis import strategies as st

from helpers.fuzzing import FUZZ, bounded, json_values, mutations, pieces_of
from tfjob_controller.api.common.schema import SAFE_INTEGER_MAX
from tfjob_controller.api.tfjob.progress import parse_pattern
from tfjob_controller.client.text import display_width, fold, one_line
from tfjob_controller.controller.logs.metricparser import LoggedMetric, MetricParser
from tfjob_controller.jobs.scaling.progress import parse_steps
from tfjob_controller.kubectl.command import JSON, YAML
from tfjob_controller.kubectl.complete import print_candidates
from tfjob_controller.kubectl.output import (
    Screen,
    escape_terminal_controls,
    print_value,
    text_after_carriage_return,
)
from tfjob_controller.util.timestamps import format_time

NAMES = ["loss", "l", "val/acc"]
LOG_LINES = (
    b"2026-01-01T00:00:00.123456789Z epoch 1 loss=0.5 val/acc = 97%\n",
    b"loss=1e-5 l=nan\rloss=+Inf\n",
    b"0001-01-01T00:00:00+23:59 loss=3\n9999-12-31T23:59:59-23:59 l=4\n",
    b"\x1b[1;31mloss\x1b[0m=2\n",
)
LOG_TOKENS = (
    *(b"loss=", b"l=", b"l", b"=", b" ", b"\t", b"\n", b"\r", b"\r\n", b"0", b"9", b".", b"e", b"-", b"inf", b"nan"),
    *(b"\x1b[31m", b"\x1b", b"\x1b[", b"\xff", b"\x00", b"_", b"1.2.3", b"2026-01-01T00:00:00Z ", b"\xc2\x85"),
    *(b"9999-99-99T99:99:99Z ", b"0001-01-01T00:00:00+23:59 ", b"x" * 100, b"0" * 50),
)
METRIC = re.compile(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?|NaN|[+-]Inf")


@FUZZ
@given(mutations(LOG_LINES, LOG_TOKENS).flatmap(lambda data: st.tuples(st.just(data), pieces_of(data))))
def test_of_any_log_the_metrics_are_numbers_however_it_arrives(case: tuple[bytes, list[bytes]]) -> None:
    data, pieces = case
    found: list[dict[str, LoggedMetric]] = []
    for each in ([data], pieces):
        parser, last = MetricParser(NAMES), dict[str, LoggedMetric]()
        with bounded(len(data)):
            for piece in each:
                last.update(parser.feed(piece))
            last.update(parser.end())
        found.append(last)
        assert parser.last_logged_at is None or format_time(parser.last_logged_at)
    assert {name: pair.value for name, pair in found[0].items()} == {
        name: pair.value for name, pair in found[1].items()
    }
    for name, pair in found[0].items():
        assert name in NAMES
        assert METRIC.fullmatch(pair.value)
        assert pair.logged_at is None or format_time(pair.logged_at)


PATTERNS = (r"step (\d+)", r"^\[(\d+)/\d+\]$", r"\w*\w*\w*([^\W]\W)", r"([0-9]{1,3})")
PATTERN_TOKENS = tuple(
    each.encode() for each in (*"()[]{}*+?|^$\\.-", r"\w", r"\W", r"\d", "(?i)", "(?:", r"\b", "{999}", "{5,2}", "é")
)


@FUZZ
@given(mutations([each.encode() for each in PATTERNS], PATTERN_TOKENS), mutations(LOG_LINES, LOG_TOKENS))
def test_any_pattern_is_refused_or_matches_any_lines_in_linear_time(expression: bytes, log: bytes) -> None:
    lines = log.decode("utf-8", "replace")
    with bounded(len(log) + len(expression), bytes_each=1000):
        pattern = parse_pattern(expression.decode("utf-8", "replace"))
        found = pattern.last_match(lines[:20_000]) if pattern is not None else None
    event(f"allowed: {pattern is not None}, matched: {found is not None}")
    assert found is None or found in lines
    steps = parse_steps(found or lines)
    assert steps is None or 0 <= steps <= SAFE_INTEGER_MAX


# Colours and the like; 8 conceals what follows.
COLOUR = re.compile(r"\x1b\[(?P<attributes>[0-9;:]*)m")
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
TERMINAL_TOKENS = (
    *(b"\x1b", b"\x1b[", b"\x1b[2J", b"\x1b[8m", b"\x1b[1;8m", b"\x1b[38;5;8m", b"\x1b[38;2;1;2;8m", b"\x1b[0m", b"m"),
    *(b";", b":", b"8", b"38", b"\x1b]0;title\x07", b"\x1b]8;;http://x\x1b\\", b"\x9b8m", b"\xc2\x9b8m", b"\r", b"\n"),
    *(b"\x08", b"\x7f", b"\xe2\x80\xae", b"\xe2\x80\xa8", b"\xff", b"\xe2", b"\xcc\x81", b"\xef\xbc\xa1", b"\t", b" "),
)
texts = mutations([b"worker-0: loss=1", b"\x1b[31mred\x1b[0m"], TERMINAL_TOKENS)


def assert_harmless(shown: str) -> None:
    """Only colours, tabs and line ends remain, and no text is concealed."""
    for match in COLOUR.finditer(shown):
        rest = re.sub(r"[34]8[;:](?:5[;:]\d+|2(?:[;:]\d+){3})", "", match["attributes"])
        assert "8" not in re.split("[;:]", rest)
    assert not CONTROL.search(COLOUR.sub("", shown))


@FUZZ
@given(texts)
def test_any_line_of_a_log_only_changes_colours_until_its_end(line: bytes) -> None:
    with bounded(len(line)):
        shown = escape_terminal_controls(text_after_carriage_return(line)).decode("utf-8", "surrogateescape")
    assert_harmless(shown)
    assert "\r" not in shown
    assert "\x1b" not in shown or shown.endswith("\x1b[0m")


@FUZZ
@given(texts, st.integers(2, 200))
def test_any_text_is_folded_into_lines_that_fit(data: bytes, width: int) -> None:
    text = data.decode("utf-8", "replace")
    with bounded(len(data), bytes_each=1000):
        line = one_line(text)
        lines = fold(line, width)
    assert line.isprintable()
    assert all(display_width(each) <= width for each in lines)
    assert "".join(lines).replace(" ", "") == line.replace(" ", "")


@FUZZ
@given(st.lists(texts, min_size=1, max_size=3), st.sampled_from([None, 20, 80]))
def test_a_table_of_any_cells_has_harmless_lines(cells: list[bytes], width: int | None) -> None:
    row = [each.decode("utf-8", "replace") for each in cells]
    out = io.StringIO()
    with bounded(sum(map(len, cells)), bytes_each=2000):
        screen = Screen(out, width=width)
        screen.table([*"abc"][: len(row)], [row, row])
        screen.fields({"a": row[-1], "b": ""})
        screen.heading(row[0])
    assert_harmless(out.getvalue())
    assert "\r" not in out.getvalue()


@FUZZ
@given(json_values | texts.map(lambda data: {"a": data.decode("utf-8", "replace")}), st.sampled_from([JSON, YAML]))
def test_any_value_printed_for_programs_means_the_same_and_is_harmless(value: Any, output: str) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), bounded(20_000 + len(str(value)), bytes_each=1000):
        assert print_value(value, output) == 0
    shown = out.getvalue()
    assert_harmless(shown)
    found = json.loads(shown) if output == JSON else yaml.load(shown, Loader=yaml.CSafeLoader)
    assert found == value or _has_nan(value)


def _has_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


CONTEXTS = b"contexts: [{name: kind-one}, {name: 'arn:aws:eks:eu-1:1:cluster/a'}, {name: me@here}]\n"
SHELL_TOKENS = (
    *(b"$(touch x)", b"`id`", b";", b"&", b"|", b">", b"<", b"'", b'"', b"\\", b"$HOME", b"!", b"*", b"~", b"\n", b" "),
    *(b"\t", b"\x1b", b":4", b", {name: '", b'", {name: "', b"null", b"[", b"{", b"}", b"]", b"- ", b"\xff", b"\\x1b"),
)


@FUZZ
@given(
    mutations([CONTEXTS], SHELL_TOKENS)
    | st.text().map(lambda name: json.dumps({"contexts": [{"name": name}]}).encode())
)
def test_no_shell_interprets_what_completion_offers(data: bytes) -> None:
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config")
        Path(path).write_bytes(data)
        with contextlib.redirect_stdout(out), bounded(len(data), bytes_each=2000):
            assert print_candidates(["list", "--kubeconfig", path, "--context", ""]) == 0
    *candidates, directive = out.getvalue().splitlines()
    event(f"candidates: {min(len(candidates), 3)}")
    assert directive == ":4"
    for each in candidates:
        name, _, description = each.partition("\t")
        assert re.fullmatch(r"[\w@%+=:,./-]+", name)
        assert description.isprintable()
