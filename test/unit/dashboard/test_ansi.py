"""What a training program prints becomes escaped HTML with colours, and nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_controller.dashboard.ansi import to_html

_ALLOWED = re.compile(r'<span class="[a-z0-9 -]+">|</span>')


@pytest.mark.parametrize(
    ("line", "html"),
    [
        ("\x1b[31mred\x1b[0m end", '<span class="fg-1">red</span> end'),
        ("\x1b[1;92mok", '<span class="bold fg-10">ok</span>'),
        ("\x1b[38;5;4mblue\x1b[39m.", '<span class="fg-4">blue</span>.'),
        ("\x1b[38;2;1;2;3mtrue\x1b[48;5;200mx", "truex"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b[31m<img src=x>", '<span class="fg-1">&lt;img src=x&gt;</span>'),
        ("a\tb", "a\tb"),
    ],
)
def test_colours_become_classes_and_the_rest_is_escaped(line: str, html: str) -> None:
    assert to_html(line) == html


@given(st.text(st.sampled_from("\x1b[];m0123456789<>&\"'ab\x07\\\t\x00\u202e"), max_size=60))
def test_no_line_makes_another_element_or_a_control_character(line: str) -> None:
    html = to_html(line)
    rest = _ALLOWED.sub("", html)
    assert not set("<>\"'") & set(rest)
    assert all(each.isprintable() or each == "\t" for each in html)
