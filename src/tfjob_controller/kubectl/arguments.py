"""The command line of the plugin. Only the standard library is imported: `--help` and `--version` are fast."""

from __future__ import annotations

import argparse
from typing import NoReturn, TypeAlias

PROGRAM = "kubectl tfjob"

TABLE, WIDE, JSON = "table", "wide", "json"
ALL_REPLICAS = "all"


class UsageError(Exception):
    """The command line cannot be used; one line."""


_Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"


class _Parser(argparse.ArgumentParser):
    """argparse's only way to say a problem in one line, without the usage before it, is to override this method."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description="TFJobs of a cluster: which there are, why one does not run, its logs.")
    parser.add_argument("--version", dest="show_version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND", parser_class=_Parser)
    _add_list(commands)
    _add_describe(commands)
    _add_logs(commands)
    _add_queue(commands)
    return parser


def _add_list(commands: _Commands) -> None:
    command = _command(commands, "list", "the jobs of a namespace, as `kubectl get tfjobs` shows them")
    command.add_argument("-A", "--all-namespaces", action="store_true", help="those of all namespaces")
    _add_output(command, TABLE, WIDE, JSON)


def _add_describe(commands: _Commands) -> None:
    command = _command(commands, "describe", "one job in full: why it does not run, its replicas, conditions, events")
    command.add_argument("name", metavar="NAME", help="of the job")
    _add_output(command, TABLE, JSON)


def _add_logs(commands: _Commands) -> None:
    command = _command(commands, "logs", "what the training program of a replica printed")
    command.add_argument("name", metavar="NAME", help="of the job")
    command.add_argument("-f", "--follow", action="store_true", help="wait for it to start, and show it as it comes")
    command.add_argument(
        "--replica",
        default="",
        metavar="REPLICA",
        help="worker-1, or all workers by `worker`, or `all`. Default: the chief",
    )
    command.add_argument("--tail", type=_count, metavar="N", help="the last N lines only")
    command.add_argument("-p", "--previous", action="store_true", help="of the run before the last restart")


def _add_queue(commands: _Commands) -> None:
    command = _command(commands, "queue", "the jobs that wait for room as a gang, in order, and what each one lacks")
    command.add_argument("-A", "--all-namespaces", action="store_true", help="those of all namespaces")
    _add_output(command, TABLE, JSON)


def _command(commands: _Commands, name: str, says: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=says, description=says[0].upper() + says[1:] + ".", allow_abbrev=False)
    command.add_argument("-n", "--namespace", default="", metavar="NAME", help="Default: that of the context")
    command.add_argument("--kubeconfig", default="", metavar="FILE", help="Default: as kubectl finds it")
    command.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig. Default: its current one")
    return command


def _add_output(command: argparse.ArgumentParser, *formats: str) -> None:
    command.add_argument("-o", "--output", choices=formats, default=TABLE, help=f"Default: {TABLE}")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number of lines, not {text!r}")
    return int(text)
