"""The command line of the plugin: its commands, their common flags, and how it is parsed.

Only the standard library and modules that need no more are imported, and only the module of the command that is called,
so that `--help`, `--version` and completion are fast.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tfjob_controller.client.text import one_line
from tfjob_controller.util.commandline import Parser, UsageError
from tfjob_controller.util.durations import parse_duration

if TYPE_CHECKING:
    from tfjob_controller.client.job import Job
    from tfjob_controller.kubectl.session import Session

PROGRAM = "kubectl tfjob"
_PACKAGE = "tfjob_controller.kubectl.commands."

TABLE, WIDE, JSON, YAML, NAME = "table", "wide", "json", "yaml", "name"
TFJOB, TRAINJOB = "tfjob", "trainjob"
KINDS = (TFJOB, TRAINJOB)
# What may stand before the slash: as kubectl has it, singular, plural and short name.
_KIND_WORDS = {"tfjob": TFJOB, "tfjobs": TFJOB, "tfj": TFJOB}
_KIND_WORDS |= {"trainjob": TRAINJOB, "trainjobs": TRAINJOB, "trj": TRAINJOB}
# `list -o name` prints the group too.
_KIND_WORDS |= {f"{word}.kubeflow.org": kind for word, kind in _KIND_WORDS.items()}
_MAX_NAME = 253
_CLUSTER_FLAGS = ("-n", "--namespace", "--kubeconfig", "--context")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class CommandHandler:
    """What a command consists of. `examples` end its `--help`; `run` returns the exit code.

    `run` raises `ClientError`, `UsageError` or `ApiError`.
    """

    examples: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Session, argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the plugin. `module` has a mapping HANDLERS and is imported when one of its commands is called.

    At its top such a module imports the standard library and this module alone: what is heavy is imported by `run`.
    """

    name: str
    summary: str
    module: str

    def handler(self) -> CommandHandler:
        handlers: Mapping[str, CommandHandler] = importlib.import_module(_PACKAGE + self.module).HANDLERS
        return handlers[self.name]


COMMANDS = (
    Command("list", "the jobs of a namespace, as `kubectl get` shows them", "list"),
    Command("describe", "one job in full: why it does not run, replicas, conditions, events", "diagnose"),
    Command("explain", "what happened to one job so far, where it stands, and what would change that", "diagnose"),
    Command("logs", "what the training program of a replica printed", "follow"),
    Command("wait", "wait until a job runs, ends or has a condition", "follow"),
    Command("queue", "the jobs that wait for room as a gang, in order, and what each one lacks", "capacity"),
    Command("top", "which replicas hold what on which node, and what is free", "capacity"),
    Command("submit", "make a job from an image and a command, or print its manifest", "submit"),
    Command("scale", "change the number of workers of a TFJob while it runs", "change"),
    Command("suspend", "end the pods of a job, and keep the job", "change"),
    Command("resume", "let a suspended job run again", "change"),
    Command("delete", "delete jobs with their pods", "change"),
    Command("completion", "print the script that completes commands in your shell", "completion"),
)


def command_of(name: str) -> Command | None:
    return next((each for each in COMMANDS if each.name == name), None)


@dataclass(frozen=True, slots=True)
class JobName:
    """A job as the command line names it; `kind` is empty for a name alone."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.kind else self.name


_Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed command line; `program` is what follows `--`. Raises `UsageError`; exits for `--help`."""
    own, program = _split(argv)
    own = command_first(own)
    called = command_of(next((each for each in own if not each.startswith("-")), ""))
    parsed, left_over = build_parser(called).parse_known_args(own)
    if left_over:
        raise _not_understood(left_over, None if own[0].startswith("-") else called)
    if program is not None and parsed.command != "submit":
        raise UsageError("what follows `--` is a command to run: only `submit` takes one")
    parsed.program = program or []
    return parsed


def _not_understood(words: Sequence[str], called: Command | None) -> UsageError:
    """The error about the first unknown word; a flag is named without its value, which may be a secret."""
    flag = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
    what = f"unknown flag: {flag[:80]}" if flag else f"unexpected argument: {words[0][:80]}"
    if called is None:
        return UsageError(f"{what} (see `{PROGRAM} --help`)")
    help_is = f"See `{PROGRAM} {called.name} --help`."
    return UsageError(what, f"{flags_of(called).format_usage()}{help_is}")


def _split(argv: Sequence[str]) -> tuple[Sequence[str], list[str] | None]:
    if "--" not in argv:
        return argv, None
    index = list(argv).index("--")
    return argv[:index], list(argv[index + 1 :])


def command_first(argv: Sequence[str]) -> Sequence[str]:
    """Moves the flags that choose a cluster behind the command; as for kubectl, they may stand before it."""
    index = 0
    while index < len(argv) and argv[index].startswith("-"):
        flag = argv[index].partition("=")[0]
        if flag not in _CLUSTER_FLAGS:
            return argv
        index += 1 if "=" in argv[index] else 2
    return [argv[index], *argv[:index], *argv[index + 1 :]] if index < len(argv) else argv


def build_parser(called: Command | None) -> Parser:
    """The whole command line, of which only the called command has its flags."""
    parser = Parser(
        prog=PROGRAM,
        description="TFJobs and TrainJobs of a cluster: submit them, see why one does not run, read its logs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", dest="show_version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND", parser_class=Parser)
    for each in COMMANDS:
        _add_command(commands, each, is_called=each == called)
    return parser


def _add_command(commands: _Commands, command: Command, *, is_called: bool) -> None:
    if not is_called:
        commands.add_parser(command.name, help=command.summary, add_help=False)
        return
    handler = command.handler()
    parser = commands.add_parser(
        command.name,
        help=command.summary,
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"examples:\n{_indented(handler.examples)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    handler.add_arguments(parser)


def flags_of(command: Command) -> Parser:
    """A parser of the command alone, to look at."""
    parser = Parser(prog=f"{PROGRAM} {command.name}", allow_abbrev=False)
    command.handler().add_arguments(parser)
    return parser


def _indented(lines: str) -> str:
    return "\n".join(f"  {line}" for line in lines.strip().splitlines())


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Which cluster, and where in it: of every command that asks one."""
    parser.add_argument("-n", "--namespace", default="", type=_namespace, metavar="NAME", help="default: the context's")
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="default: as kubectl finds it")
    parser.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig; default: its current one")


def add_all_namespaces(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="those of all namespaces")


def add_kind(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", choices=KINDS, default="", help="those of one kind only; default: both")


def add_job(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Adds the argument `job`, or `jobs` for several."""
    says = "NAME, tfjob/NAME or trainjob/NAME"
    if several:
        parser.add_argument("jobs", metavar="JOB", type=job_argument, nargs="+", help=says)
    else:
        parser.add_argument("job", metavar="JOB", type=job_argument, help=says)


def add_output(parser: argparse.ArgumentParser, *formats: str) -> None:
    parser.add_argument("-o", "--output", choices=formats, default=formats[0], help=f"default: {formats[0]}")


def add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        type=duration_argument,
        metavar="DURATION",
        help="such as 90s, 10m or 1h30m; 0 looks once. Default: no limit",
    )


def job_argument(text: str) -> JobName:
    """`NAME`, or `KIND/NAME` with the words that kubectl knows."""
    word, slash, name = text.rpartition("/")
    if slash and word not in _KIND_WORDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no job: say NAME, tfjob/NAME or trainjob/NAME")
    return JobName(_KIND_WORDS[word] if slash else "", name_argument(name, "a job"))


def _namespace(text: str) -> str:
    return name_argument(text, "a namespace") if text else ""


def name_argument(text: str, what: str) -> str:
    if len(text) > _MAX_NAME or not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} cannot be the name of {what}: lower-case letters, digits, - and . are allowed"
        )
    return text


def count_argument(text: str) -> int:
    return _whole_number(text, least=0)


def positive_argument(text: str) -> int:
    return _whole_number(text, least=1)


def _whole_number(text: str, least: int) -> int:
    if _WHOLE_NUMBER.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text[:80]!r}")
    if (found := int(text)) < least:
        raise argparse.ArgumentTypeError(f"must be {least} or more")
    return found


def duration_argument(text: str) -> float:
    """A duration as Go writes it, or plain seconds."""
    try:
        return parse_duration(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a duration such as 90s, 10m or 1h30m, not {text[:80]!r}") from None


def command_for(job: Job, command: str) -> str:
    """A command line about this job, for messages that say what to do next."""
    return f"{PROGRAM} {command} {job.kind}/{job.name} -n {job.namespace}"


def print_refusal(words: str) -> None:
    """Print one line to standard error."""
    print(f"{PROGRAM}: {one_line(words)}", file=sys.stderr)
