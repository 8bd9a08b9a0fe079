"""api/tfjob/progress.py: which patterns are taken, and what they find."""

from __future__ import annotations

import time

import pytest

from tfjob_controller.api.tfjob.progress import MAX_LINE, parse_pattern


@pytest.mark.parametrize(
    ("pattern", "line", "said"),
    [
        ("step ([0-9]+)", "loss 0.1, step 12, lr 3", "12"),
        (r"^step (\d+)$", "step 12", "12"),
        (r"^step (\d+)$", "a step 12", None),
        ("step (.+)", "step twelve", "twelve"),
        (r"step[ :=]+(\S+)", "step:\t5", None),
        (r"step[ :=\t]+(\S+)", "step:\t5", "5"),
        ("step ([0-9]+)", "x" * MAX_LINE + "step 12", None),
    ],
)
def test_what_stands_in_the_group_counts(pattern: str, line: str, said: str | None) -> None:
    known = parse_pattern(pattern)
    assert known is not None
    assert known.match(line) == said


@pytest.mark.parametrize("pattern", ["([z-a])", "(a{1000})", "a*(b)**", r"([\p])", "()", "", "(.{0,999})b.{0,999}c"])
def test_what_has_no_good_meaning_or_needs_too_much_memory_is_refused(pattern: str) -> None:
    assert parse_pattern(pattern) is None


@pytest.mark.parametrize(
    "pattern", [r"\w*\w*\w*([^\W]\W)", ".*.*.{0,999}(b)", "[^a-c]{1,99}([a-z]{1,99})[x-z]{1,99}"], ids=lambda each: each
)
def test_the_worst_pattern_on_the_worst_lines_takes_next_to_nothing(pattern: str) -> None:
    known = parse_pattern(pattern)
    assert known is not None
    # 4 s for one line, for an engine that tries all ways to divide it; here some milliseconds for a thousand.
    begin = time.thread_time()
    assert known.last_match(("a" * 10_000 + "\n") * 1000) is None
    assert time.thread_time() - begin < 2.0
