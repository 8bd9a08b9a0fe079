"""`tfjob-controller`: the command line.

Exit codes: 0 after an orderly stop, 1 when something went wrong on the way, 2 for a command line, variable or file that
cannot be used, with one line on standard error that says which; `initialize` and `export` have more, which stand in
storage/errors.py. Whatever takes long to import is imported when it is needed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from tfjob_controller.flags import OFF, Option, OptionError
from tfjob_controller.options import (
    EXTENDER_OPTIONS,
    OPTIONS,
    ExtenderOptions,
    RunOptions,
    resolve,
    resolve_extender,
)
from tfjob_controller.simulator.options import SIMULATE_OPTIONS, SimulateOptions, resolve_simulate
from tfjob_controller.storage.options import (
    EXPORT_OPTIONS,
    INITIALIZE_OPTIONS,
    ExportOptions,
    InitializeOptions,
    resolve_export,
    resolve_initialize,
)

PROGRAM = "tfjob-controller"
EXIT_USAGE = 2


class UsageError(Exception):
    """The command line cannot be used; one line."""


class _Parser(argparse.ArgumentParser):
    """argparse's only way to say a problem in one line, without the usage before it, is to override this method."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = build_parser()
    arguments = sys.argv[1:] if argv is None else argv
    try:
        parsed = vars(parser.parse_args(arguments))
        if parsed.pop("show_version", False):
            print(f"{PROGRAM} {_version()}")
            return 0
        command = parsed.pop("command", None)
        if command is None:
            parser.print_help()
            return 0
        if command == "extender":
            return _extend(resolve_extender(parsed, os.environ))
        if command == "simulate":
            return _simulate(resolve_simulate(parsed, os.environ))
        if command == "initialize":
            what = parsed.pop("what")
            return _initialize(what, resolve_initialize(what, parsed, os.environ))
        if command == "export":
            return _export(resolve_export(parsed, os.environ))
        return _run(resolve(parsed, os.environ))
    except (UsageError, OptionError) as error:
        return _refuse(error)


def build_parser() -> argparse.ArgumentParser:
    """The parser, made from the table in options.py. Values stay text: `options.resolve` reads them."""
    parser = _Parser(prog=PROGRAM, description="Runs TFJobs: distributed TensorFlow training on Kubernetes.")
    parser.add_argument("--version", dest="show_version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND", parser_class=_Parser)
    run = commands.add_parser(
        "run",
        help="run the controller until it is told to stop",
        description="Run the controller until SIGTERM or SIGINT. Every flag can also be set as a variable: "
        "--log-level as TFJOB_CONTROLLER_LOG_LEVEL.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    extender = commands.add_parser(
        "extender",
        help="run the gang scheduler, beside a kube-scheduler, until it is told to stop",
        description="Run the gang scheduler, which kube-scheduler calls as an extender, until SIGTERM or SIGINT. Every "
        "flag can also be set as a variable: --bind-timeout as TFJOB_CONTROLLER_BIND_TIMEOUT.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    simulate = commands.add_parser(
        "simulate",
        help="compare default Kubernetes, gang scheduling, locality and autoscaling on simulated jobs",
        description="Simulate jobs under several policies, by the rules that the gang scheduler runs by; no cluster is "
        "needed. Every flag can also be set as a variable: --mean-arrival as TFJOB_CONTROLLER_MEAN_ARRIVAL.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    initialize = commands.add_parser(
        "initialize",
        help="fetch a TrainJob's dataset or model into a folder",
        description="Fetch all files of a URI into a folder, and mark it when all are there; credentials come from "
        "variables. Every flag can also be set as a variable: --target as TFJOB_CONTROLLER_TARGET.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    initialize.add_argument(
        "what", choices=("dataset", "model"), help="which folder, and which kind of hf:// repository"
    )
    export = commands.add_parser(
        "export",
        help="send a TrainJob's trained model to where it is kept",
        description="Send all files of a folder to a URI; credentials come from variables. Every flag can also be set "
        "as a variable: --source as TFJOB_CONTROLLER_SOURCE.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    for command, options in (
        (run, OPTIONS),
        (extender, EXTENDER_OPTIONS),
        (simulate, SIMULATE_OPTIONS),
        (initialize, INITIALIZE_OPTIONS),
        (export, EXPORT_OPTIONS),
    ):
        for option in options:
            _add(command, option)
    simulate.add_argument("-o", dest="output", metavar="table|json", help="short for --output")
    return parser


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    text = option.help.replace("%", "%%")
    if option.default_text not in ("", OFF):
        text += f" Default: {option.default_text}."
    if option.kind.is_switch:
        parser.add_argument(
            option.flag, dest=option.field, nargs="?", const="true", metavar=option.kind.name, help=text
        )
    else:
        parser.add_argument(option.flag, dest=option.field, metavar=option.kind.name.upper(), help=text)


def _run(options: RunOptions) -> int:
    from tfjob_controller.programs import manager
    from tfjob_controller.programs.program import StartError

    try:
        return manager.run(options)
    except StartError as error:
        return _refuse(error)


def _extend(options: ExtenderOptions) -> int:
    from tfjob_controller.programs import gangscheduler
    from tfjob_controller.programs.program import StartError

    try:
        return gangscheduler.run(options)
    except StartError as error:
        return _refuse(error)


def _simulate(options: SimulateOptions) -> int:
    from tfjob_controller.simulator import command
    from tfjob_controller.simulator.jobs import SimulationError

    try:
        return command.run(options)
    except SimulationError as error:
        return _refuse(error)


def _initialize(what: str, options: InitializeOptions) -> int:
    from tfjob_controller.storage import commands
    from tfjob_controller.telemetry import logging

    logging.configure(options.log_format, options.log_level)
    return commands.initialize(what, options)


def _export(options: ExportOptions) -> int:
    from tfjob_controller.storage import commands
    from tfjob_controller.telemetry import logging

    logging.configure(options.log_format, options.log_level)
    return commands.export(options)


def _refuse(error: Exception) -> int:
    print(f"{PROGRAM}: {' '.join(str(error).split())}", file=sys.stderr)
    return EXIT_USAGE


def _version() -> str:
    from importlib import metadata

    return metadata.version(PROGRAM)
