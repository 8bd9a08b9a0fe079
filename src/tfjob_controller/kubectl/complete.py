"""What may come next on the command line: for kubectl's own completion, and for the scripts of `completion`.

kubectl calls `kubectl_complete-tfjob` with the words so far, the last of which is to be completed. The answer is one
candidate a line, with a tab and a few words behind it, and a last line that says what the shell is to do besides.
Whatever goes wrong, nothing is said: a prompt is no place for errors.
Source: kubectl pkg/cmd/plugin/plugin_completion.go, cobra completions.go (ShellCompDirective).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tfjob_controller.kubectl.arguments import command_first, flags_of
from tfjob_controller.kubectl.registry import COMMANDS, command_of

# Sums of these say what a shell does: add no space, complete no file names.
FILES, NO_SPACE, NO_FILES = 0, 2, 4

Candidates = Iterable[str]


@dataclass(frozen=True, slots=True)
class Line:
    """The words before the one to complete, taken apart: `values` of flags by destination, and positional ones."""

    values: dict[str, str]
    positional: Sequence[str]
    word: str


def main() -> int:
    """`kubectl_complete-tfjob`."""
    return print_candidates(sys.argv[1:])


def print_candidates(words: Sequence[str]) -> int:
    try:
        candidates, directive = complete(words or [""])
        lines = [*dict.fromkeys(candidates), f":{directive}"]
    except (Exception, SystemExit):  # whatever it was, the next word is typed by hand
        lines = [f":{NO_FILES}"]
    print("\n".join(lines))
    return 0


def complete(words: Sequence[str]) -> tuple[Candidates, int]:
    """Candidates for the last word, and the directive."""
    given, word = command_first(words[:-1]), words[-1]
    called = next((index for index, each in enumerate(given) if not each.startswith("-")), None)
    if called is None:
        return _beginning(_commands(word), word), NO_FILES
    command = command_of(given[called])
    if command is None:
        return (), NO_FILES
    if "--" in given:
        return (), FILES
    return _after(command.name, flags_of(command), given[called + 1 :], word)


def _commands(word: str) -> Candidates:
    if word.startswith("-"):
        return ("--help", "--version")
    return [f"{each.name}\t{each.summary}" for each in COMMANDS]


def _after(name: str, parser: argparse.ArgumentParser, given: Sequence[str], word: str) -> tuple[Candidates, int]:
    # argparse has no public way to ask for these; argcomplete reads them too.
    by_flag = parser._option_string_actions
    line, open_flag = _taken_apart(by_flag, given, word)
    if open_flag is None and word.startswith("--") and "=" in word:
        flag, _, rest = word.partition("=")
        open_flag = by_flag.get(flag)
        line = Line(line.values, line.positional, rest)
    if open_flag is not None:
        return _of_action(open_flag, name, line)
    if word.startswith("-"):
        return _beginning(_flags(by_flag), word), NO_FILES
    awaited = _awaited(parser, len(line.positional))
    return _of_action(awaited, name, line) if awaited is not None else ((), NO_FILES)


def _taken_apart(
    by_flag: dict[str, argparse.Action], given: Sequence[str], word: str
) -> tuple[Line, argparse.Action | None]:
    """The line, and the flag whose value is to be completed."""
    values: dict[str, str] = {}
    positional: list[str] = []
    waiting: argparse.Action | None = None
    for each in given:
        if waiting is not None:
            values[waiting.dest] = each
            waiting = None
        elif each.startswith("-"):
            flag, equals, value = each.partition("=")
            action = by_flag.get(flag)
            if action is not None and equals:
                values[action.dest] = value
            elif action is not None and action.nargs != 0:
                waiting = action
        else:
            positional.append(each)
    return Line(values, positional, word), waiting


def _flags(by_flag: dict[str, argparse.Action]) -> Candidates:
    return [f"{flag}\t{action.help}" for flag, action in by_flag.items() if flag.startswith("--")]


def _awaited(parser: argparse.ArgumentParser, taken: int) -> argparse.Action | None:
    """The positional argument that comes next."""
    positional = parser._get_positional_actions()
    if taken < len(positional):
        return positional[taken]
    return positional[-1] if positional and positional[-1].nargs == "+" else None


def _of_action(action: argparse.Action, command: str, line: Line) -> tuple[Candidates, int]:
    """What the value of a flag or argument may be."""
    if action.dest == "kubeconfig":
        return (), FILES
    if action.choices is not None:
        return _beginning(map(str, action.choices), line.word), NO_FILES
    if action.dest == "until":
        from tfjob_controller.kubectl.commands.wait import WORDS

        return _beginning([*WORDS, "condition="], line.word), NO_FILES
    source = _source_of(action.dest, command)
    return (_beginning(source(line), line.word) if source is not None else ()), NO_FILES


def _source_of(destination: str, command: str) -> Callable[[Line], Candidates] | None:
    """What asks the cluster or the kubeconfig; imported when it is needed."""
    from tfjob_controller.kubectl import candidates

    sources = {
        "job": candidates.tfjobs if command == "scale" else candidates.jobs,
        "jobs": candidates.jobs,
        "namespace": candidates.namespaces,
        "context": candidates.contexts,
        "replica": candidates.replicas,
        "framework": candidates.frameworks,
        "runtime": candidates.runtimes,
    }
    return sources.get(destination)


def _beginning(candidates: Candidates, word: str) -> list[str]:
    return [each for each in candidates if each.startswith(word)]
