"""api/tfjob/progress.py: which patterns are taken, and what they find."""

from __future__ import annotations

import pytest

from tfjob_controller.api.tfjob.progress import MAX_LINE, compile_pattern, match_line, parse_steps


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
    known = compile_pattern(pattern)
    assert known is not None
    assert match_line(known, line) == said


@pytest.mark.parametrize("pattern", ["([z-a])", "(a{3,2})", "(a{1000})", "a*(b)**", "(?:a)(b)", r"([\p])", "()", ""])
def test_what_python_or_a_shared_thread_cannot_take_is_refused(pattern: str) -> None:
    assert compile_pattern(pattern) is None


def test_the_worst_pattern_on_the_worst_line_ends() -> None:
    known = compile_pattern(".*.*.{0,999}(b)")
    assert known is not None
    assert match_line(known, "a" * 10**6) is None


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("12", 12),
        (" 12\n", 12),
        ("0", 0),
        ("-1", None),
        ("1.5", None),
        ("1e3", None),
        ("", None),
        ("٣", None),
        (str(2**53 - 1), 2**53 - 1),
        (str(2**53), None),
        ("9" * 400, None),
    ],
)
def test_a_number_of_steps_is_a_plain_number(text: str, steps: int | None) -> None:
    assert parse_steps(text) == steps
