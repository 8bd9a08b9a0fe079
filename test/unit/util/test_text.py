"""Characters that rule whoever looks at them, by what Unicode says of each."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest

from tfjob_controller.util.text import CONTROL_CHARACTERS, escape

# Embeddings, overrides and isolates, and what ends them: Unicode's names of their directions (UAX #9).
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
ENDS_OF_LINES = {"Zl", "Zp"}


def rules_a_reader(character: str) -> bool:
    is_control = unicodedata.category(character) == "Cc" and not "\x00" <= character < "\x7f"
    return (
        is_control
        or unicodedata.category(character) in ENDS_OF_LINES
        or unicodedata.bidirectional(character) in TURNING
    )


def test_all_of_unicode_that_rules_a_reader_is_named_and_nothing_else() -> None:
    everything = map(chr, range(sys.maxunicode + 1))
    found = re.compile(f"[{CONTROL_CHARACTERS}]")
    assert [each for each in everything if bool(found.match(each)) != rules_a_reader(each)] == []


@pytest.mark.parametrize(
    ("character", "shown"),
    [("\x1b", r"\x1b"), ("\u202e", r"\u202e"), ("\ud800", r"\ud800")],
)
def test_a_character_is_shown_by_its_number(character: str, shown: str) -> None:
    assert escape(character) == shown
    assert escape(character).isprintable()
