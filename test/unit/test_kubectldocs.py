"""docs/kubectl.md has every command of the plugin, and examples that it can read. A test of all docs runs them."""

from __future__ import annotations

import re
import shlex

from helpers.docscommands import ROOT, commands
from tfjob_controller.kubectl.arguments import COMMANDS, parse

PAGE = "docs/kubectl.md"
PLUGIN = "kubectl tfjob "
EXAMPLES = [
    shlex.split(each.text.splitlines()[0].removeprefix(PLUGIN), comments=True)
    for each in commands(PAGE)
    if each.text.startswith(PLUGIN)
]


def test_the_page_shows_every_command_with_an_example() -> None:
    shown = set(re.findall(r"kubectl tfjob (\w+)", (ROOT / PAGE).read_text("utf-8")))
    assert shown >= {command.name for command in COMMANDS}
    assert EXAMPLES
    for example in EXAMPLES:
        assert parse(example).command == example[0]
