"""Every command that docs/kubectl.md shows is run, in its order, on a real API server."""

from __future__ import annotations

import re
import shlex

import pytest

from helpers.docs import DOCS
from helpers.playground import Playground, Trial
from helpers.plugin import Run
from tfjob_controller.kubectl.arguments import parse
from tfjob_controller.kubectl.registry import COMMANDS

pytestmark = pytest.mark.cluster

PAGE = (DOCS / "kubectl.md").read_text("utf-8")
CONSOLES = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHOWN = [
    shlex.split(line.removeprefix("$ kubectl tfjob "), comments=True)
    for console in CONSOLES
    for line in console.splitlines()
    if line.startswith("$ kubectl tfjob ")
]
# The playground's nodes have no logs: those commands are read, and run by test_kubectl_logs.py.
RUN = [command for command in SHOWN if command[0] != "logs"]


def test_the_page_shows_every_command_with_an_example() -> None:
    shown = {command[0] for command in SHOWN} | set(re.findall(r"kubectl tfjob (\w+)", PAGE))
    assert shown >= {command.name for command in COMMANDS}
    for command in SHOWN:
        assert parse(command).command == command[0]


def test_the_commands_of_the_page_run_one_after_the_other(plugin: Run, playground: Playground) -> None:
    train, finetune = (
        Trial(playground, name, trial.jobs)
        for name, trial in (("train", playground.new_trial()), ("finetune", playground.new_train_trial()))
    )
    try:
        for command in RUN:
            if command[0] == "list":  # it shows what runs
                train.await_phase("Running")
                finetune.await_phase("Running")
            code, out, error = plugin(*command)
            assert code == 0, (command, error)
            if command[0] == "list":
                assert "finetune" in out
    finally:
        for trial in (train, finetune):
            trial.clear()
