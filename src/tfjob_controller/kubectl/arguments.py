"""The command line of the plugin: all commands, and how it is parsed.

Only the standard library and modules that need no more are imported, so that `--help`, `--version` and completion are
fast.
"""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from collections.abc import Sequence

from tfjob_controller.kubectl.changecommands import CHANGE_COMMANDS
from tfjob_controller.kubectl.command import NO_DRY_RUN, PROGRAM, Command
from tfjob_controller.kubectl.connectionflags import ROOT_FLAGS, command_first, has_token, with_values
from tfjob_controller.kubectl.readcommands import READ_COMMANDS
from tfjob_controller.util.commandline import Parser, UsageError


def _add_completion(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that you use")


_COMPLETION = Command(
    "completion",
    "print the script that completes commands in your shell",
    "complete:print_script",
    _add_completion,
    (
        "source <(kubectl tfjob completion bash)",
        "kubectl tfjob completion zsh > ~/.zsh/completions/_kubectl-tfjob",
        "kubectl tfjob completion fish > ~/.config/fish/completions/kubectl-tfjob.fish",
    ),
    has_cluster=False,
)

COMMANDS = (*READ_COMMANDS, *CHANGE_COMMANDS, _COMPLETION)


def command_of(name: str) -> Command | None:
    return next((command for command in COMMANDS if command.name == name), None)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed command line; `program` is what follows `--`. Raises `UsageError`; exits for `--help`."""
    dashes = list(argv).index("--") if "--" in argv else len(argv)
    own, program = _as_flags(command_first(with_values(argv[:dashes]))), list(argv[dashes + 1 :])
    if dashes and not own:
        raise UsageError("a command is needed", build_parser(None).format_help().rstrip())
    called = command_of(own[0]) if own else None
    if called is None and own and own[0] not in ROOT_FLAGS:
        hides = has_token(own)
        raise _not_understood(own, None, hides_values=hides) if hides or own[0].startswith("-") else _no_command(own[0])
    parsed, left_over = build_parser(called).parse_known_args(own)
    if left_over:
        raise _not_understood(left_over, called, hides_values=has_token(own))
    if dashes < len(argv) and parsed.command != "submit":
        raise UsageError("only `submit` accepts a command after `--`")
    if getattr(parsed, "dry_run", None) == NO_DRY_RUN:
        parsed.dry_run = None
    parsed.program = program
    return parsed


def _as_flags(arguments: Sequence[str]) -> Sequence[str]:
    """`help COMMAND` and `version` are `COMMAND --help` and `--version`, as for kubectl."""
    if arguments[:1] == ["version"]:
        return ["--version"]
    # Flags that choose a cluster may stand in between.
    return [*arguments[1:][-1:], "--help"] if arguments[:1] == ["help"] else arguments


def _no_command(name: str) -> UsageError:
    import difflib

    similar = difflib.get_close_matches(name[:80], [command.name for command in COMMANDS], 1)
    hint = f": did you mean `{similar[0]}`?" if similar else ""
    return UsageError(f"there is no command {name[:80]!r}{hint} (see `{PROGRAM} --help`)")


def _not_understood(arguments: Sequence[str], called: Command | None, *, hides_values: bool = False) -> UsageError:
    """The error about the first unknown argument; a flag is named without its value, which may be a secret.

    With `hides_values` no other argument is named either: after `--token= TOKEN` it would be the token.
    """
    flag = next((argument.partition("=")[0] for argument in arguments if argument.startswith("-")), "")
    problem = f"unknown flag: {flag[:80]}" if flag else "unexpected argument"
    if not flag and not hides_values:
        problem = f"{problem}: {arguments[0][:80]}"
    if called is None:
        return UsageError(f"{problem} (see `{PROGRAM} --help`)")
    return UsageError(problem, f"{flags_of(called).format_usage()}See `{PROGRAM} {called.name} --help`.")


def build_parser(called: Command | None) -> Parser:
    """The parser of the whole command line, in which only the called command has its flags."""
    parser = Parser(
        prog=PROGRAM,
        description="TFJobs and TrainJobs of a cluster: submit them, see why one does not run, read its logs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", dest="show_version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS:
        if command != called:
            commands.add_parser(command.name, help=command.summary, add_help=False)
            continue
        own = commands.add_parser(
            command.name,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog="\n  ".join(("examples:", *command.examples)),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_flags(own)
    return parser


def flags_of(command: Command) -> Parser:
    """A parser of the command alone, from which its flags can be read."""
    parser = Parser(prog=f"{PROGRAM} {command.name}", allow_abbrev=False)
    command.add_flags(parser)
    return parser
