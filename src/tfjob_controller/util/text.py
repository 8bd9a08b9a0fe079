"""What strangers wrote, where a person reads it: names, messages and reasons of others, logs, answers of a server.

Some characters do more than to be seen. Sequences that clear a screen or write over a line begin with a control
character, of which there are 32 in ASCII and 32 more of eight bits. Two ends of lines only some programs know, so that
what is one line to one program begins another in the next. And some turn text round: a reader then sees another order
than programs do. Whoever shows such text replaces them by their numbers.

Which characters of ASCII may pass depends on what is shown, and is said there; of the others none ever may.
"""

from __future__ import annotations

# For a set in a regular expression: DEL and the control characters of eight bits; the two ends of lines; embeddings,
# overrides and isolates of either direction.
CONTROL_CHARACTERS = "\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"


def escape(character: str) -> str:
    r"""As `\x1b` or `\u202e`: what it does is to be seen, not done."""
    return character.encode("unicode_escape").decode()
