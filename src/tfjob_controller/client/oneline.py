"""Words of others on one line. Only the standard library, since a refusal of the command line is told so, too."""

from __future__ import annotations

from tfjob_controller.util.text import escape


def one_line(text: str) -> str:
    """Without control characters: what a program wrote must not rule the reader's terminal."""
    shown = (each if each.isprintable() else " " if each.isspace() else escape(each) for each in text)
    return " ".join("".join(shown).split())
