"""A command of the plugin, and the arguments that several commands have.

Only the standard library and modules that need no more are imported, so that `--help`, `--version` and completion are
fast. The module that runs a command is imported once the command line is known to be valid.
"""

from __future__ import annotations

import argparse
import pkgutil
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfjob_controller.kubectl.argumenttypes import JOB_FORMS, duration_argument, job_argument
from tfjob_controller.kubectl.connectionflags import add_connection_flags

if TYPE_CHECKING:
    from tfjob_controller.kubectl.session import Session

PROGRAM = "kubectl tfjob"
# That of timeout(1).
EXIT_TIMEOUT = 124

TABLE, WIDE, JSON, YAML, NAME = "table", "wide", "json", "yaml", "name"
CLIENT, SERVER, NO_DRY_RUN = "client", "server", "none"


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the plugin. `handler` is the module below `kubectl`, and the function that runs the command.

    The function returns the exit code, and raises `ClientError`, `UsageError` or `ApiError`. `examples` end `--help`.
    """

    name: str
    summary: str
    handler: str
    add_arguments: Callable[[ArgumentParser], None]
    examples: Sequence[str]
    has_cluster: bool = True

    def run(self, session: Session, parsed: argparse.Namespace) -> int:
        code: int = pkgutil.resolve_name(f"tfjob_controller.kubectl.{self.handler}")(session, parsed)
        return code

    def add_flags(self, parser: ArgumentParser) -> None:
        """Adds all arguments of the command, with those that choose a cluster."""
        self.add_arguments(parser)
        if self.has_cluster:
            # The usage would be three times as long with them.
            usage = parser.usage or parser.format_usage().removeprefix("usage: ").strip()
            parser.usage = f"{usage} [connection flags]"
            add_connection_flags(parser)


# The formats that need kubectl's own engines.
_OF_KUBECTL = {"jsonpath", "jsonpath-as-json", "jsonpath-file", "custom-columns", "custom-columns-file"}
_OF_KUBECTL |= {"go-template", "go-template-file", "template", "templatefile"}


def is_of_kubectl(output: str) -> bool:
    """Whether it is a format that kubectl has, and this plugin does not."""
    return output.partition("=")[0] in _OF_KUBECTL


@dataclass(frozen=True, slots=True)
class _Formats:
    """The values of `-o` that help and completion show.

    Those of kubectl are accepted too, so that a message can explain how to get them.
    """

    own: Sequence[str]

    def __iter__(self) -> Iterator[str]:
        return iter(self.own)

    def __contains__(self, output: str) -> bool:
        return output in self.own or is_of_kubectl(output)


JOB_HELP = JOB_FORMS


def add_job(parser: ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", type=job_argument, help=JOB_HELP)


def add_jobs(parser: ArgumentParser, read: Callable[[str], Any] = job_argument, job_help: str = JOB_HELP) -> None:
    """Jobs by name, by labels, or all of the namespace."""
    parser.add_argument("jobs", metavar="JOB", type=read, nargs="*", help=job_help)
    parser.add_argument("-l", "--selector", default="", metavar="SELECTOR", help="the jobs with these labels")
    parser.add_argument("--all", action="store_true", help="all jobs of the namespace")


def add_dry_run(parser: ArgumentParser) -> None:
    description = (
        "print the change without making it; `client`, the default, sends no request for it, `server` has it validated"
    )
    parser.add_argument("--dry-run", choices=(CLIENT, SERVER, NO_DRY_RUN), help=description)


def add_all_namespaces(parser: ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="include all namespaces")


def add_no_headers(parser: ArgumentParser) -> None:
    parser.add_argument("--no-headers", action="store_true", help="print the table without its header")


def add_output(parser: ArgumentParser, *formats: str, accepts_kubectls: bool = False) -> None:
    choices: Any = _Formats(formats) if accepts_kubectls else formats
    parser.add_argument("-o", "--output", choices=choices, default=formats[0], help=f"default: {formats[0]}")


def add_timeout(parser: Any) -> None:
    description = "longest wait, such as 90s, 10m or 1h30m; 0 checks once; default: no limit"
    parser.add_argument("--timeout", type=duration_argument, metavar="DURATION", help=description)
