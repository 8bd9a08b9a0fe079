"""The command line of `tfjob-controller`: the table of its commands, their parser, and the call of one of them.

Exit codes:

    0     the program stopped in order, or has printed what was requested
    1     an error occurred while the program ran
    2     the command line, a variable or a file is invalid; one line on standard error names it
    ...   those of `util.exitcodes.guarded`; for `initialize`, `export` and `checkpoint restore` also storage/errors.py

A program is imported when its command runs, so that `--help` and errors of usage appear at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn, TypeAlias

from tfjob_controller.flags import OFF, Option
from tfjob_controller.options import (
    DASHBOARD_OPTIONS,
    EXTENDER_OPTIONS,
    OPTIONS,
    resolve,
    resolve_dashboard,
    resolve_extender,
)
from tfjob_controller.simulator.options import SIMULATE_OPTIONS, resolve_simulate
from tfjob_controller.storage.checkpoints.options import (
    RESTORE_OPTIONS,
    SAVE_OPTIONS,
    resolve_restore,
    resolve_save,
)
from tfjob_controller.storage.options import (
    EXPORT_OPTIONS,
    INITIALIZE_OPTIONS,
    resolve_export,
    resolve_initialize,
)
from tfjob_controller.util.commandline import Parser, UsageError, install_hint
from tfjob_controller.util.exitcodes import EXIT_USAGE, guarded
from tfjob_controller.util.terminal import print_line

PROGRAM = "tfjob-controller"
# What the extra `operator` of setup.cfg installs, by the names under which it is imported.
OPERATOR_MODULES = ("cryptography", "httptools", "prometheus_client", "re2", "uvloop")


# The values of given flags by the fields of their options.
Flags: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True)
class ProgramCommand:
    """A command of `tfjob-controller`. Its help explains the environment variables by the option `example`."""

    name: str
    help: str
    description: str
    options: Sequence[Option]
    example_field: str
    run: Callable[[Flags], int]
    """Returns the exit code."""

    @property
    def example(self) -> Option:
        return next(option for option in self.options if option.field == self.example_field)


def _require_operator(command: str) -> None:
    """Checks that the extra `operator` is installed. Raises UsageError."""
    missing = [name for name in OPERATOR_MODULES if not _can_import(name)]
    if missing:
        raise UsageError(
            f"{command} needs packages that are not installed here ({', '.join(missing)}); {install_hint('operator')}"
        )


def _can_import(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def _run(flags: Flags) -> int:
    options = resolve(flags, os.environ)
    _require_operator("run")
    from tfjob_controller.programs import manager
    from tfjob_controller.programs.program import StartError

    try:
        return manager.run(options)
    except StartError as error:
        return _refuse(error)


def _extend(flags: Flags) -> int:
    options = resolve_extender(flags, os.environ)
    _require_operator("extender")
    from tfjob_controller.programs import gangscheduler
    from tfjob_controller.programs.program import StartError

    try:
        return gangscheduler.run(options)
    except StartError as error:
        return _refuse(error)


def _show(flags: Flags) -> int:
    options = resolve_dashboard(flags, os.environ)
    from tfjob_controller.telemetry import logging

    try:
        from tfjob_controller.dashboard import program
    except ImportError as error:
        raise UsageError(f"the dashboard is not installed ({error}); {install_hint('dashboard')}") from None
    logging.configure(options.log_format, options.log_level)
    try:
        return program.run(options, os.environ)
    except program.DashboardStartError as error:
        return _refuse(error)


def _simulate(flags: Flags) -> int:
    options = resolve_simulate(flags, os.environ)
    from tfjob_controller.simulator import command
    from tfjob_controller.simulator.model import SimulationError

    try:
        return command.run(options)
    except SimulationError as error:
        return _refuse(error)


def _initialize(flags: Flags) -> int:
    what = flags.pop("what")
    options = resolve_initialize(what, flags, os.environ)
    from tfjob_controller.storage import commands
    from tfjob_controller.telemetry import logging

    logging.configure(options.log_format, options.log_level)
    return commands.initialize(what, options)


def _export(flags: Flags) -> int:
    options = resolve_export(flags, os.environ)
    from tfjob_controller.storage import commands
    from tfjob_controller.telemetry import logging

    logging.configure(options.log_format, options.log_level)
    return commands.export(options)


def _save_checkpoints(flags: Flags) -> int:
    options = resolve_save(flags, os.environ)
    # Without the library of log lines, which would need more memory than all else in this process.
    from tfjob_controller.storage.checkpoints import commands

    return commands.save(options)


def _upload_checkpoints() -> NoReturn:
    from tfjob_controller.storage.checkpoints import uploadprocess
    from tfjob_controller.telemetry import logging

    uploadprocess.run_upload(logging.configure)


def _restore_checkpoint(flags: Flags) -> int:
    options = resolve_restore(flags, os.environ)
    from tfjob_controller.storage.checkpoints import commands
    from tfjob_controller.telemetry import logging

    logging.configure(options.log_format, options.log_level)
    return commands.restore(options)


COMMANDS = (
    ProgramCommand(
        "run",
        "run the controller until SIGTERM or SIGINT",
        "Run the controller until SIGTERM or SIGINT.",
        OPTIONS,
        "log_level",
        _run,
    ),
    ProgramCommand(
        "extender",
        "run the gang scheduler, which a kube-scheduler calls, until SIGTERM or SIGINT",
        "Run the gang scheduler, which kube-scheduler calls as an extender, until SIGTERM or SIGINT.",
        EXTENDER_OPTIONS,
        "bind_timeout",
        _extend,
    ),
    ProgramCommand(
        "dashboard",
        "show jobs, the queue and nodes in browsers, with the rights of each user",
        "Serve the dashboard to users who log in with tokens of the cluster, until SIGTERM or SIGINT.",
        DASHBOARD_OPTIONS,
        "hosts",
        _show,
    ),
    ProgramCommand(
        "simulate",
        "compare default Kubernetes, gang scheduling, locality and autoscaling on simulated jobs",
        "Simulate jobs under several policies, with the rules of the gang scheduler; no cluster is needed.",
        SIMULATE_OPTIONS,
        "mean_arrival",
        _simulate,
    ),
    ProgramCommand(
        "initialize",
        "fetch a TrainJob's dataset or model into a folder",
        "Fetch all files of a URI into a folder, and mark it once it is complete; credentials come from variables.",
        INITIALIZE_OPTIONS,
        "target",
        _initialize,
    ),
    ProgramCommand(
        "export",
        "upload a TrainJob's trained model",
        "Upload all files of a folder to a URI; credentials come from variables.",
        EXPORT_OPTIONS,
        "source",
        _export,
    ),
)
# The commands of `tfjob-controller checkpoint`.
CHECKPOINT_COMMANDS = (
    ProgramCommand(
        "save",
        "watch a folder, and upload each complete checkpoint",
        "Save the checkpoints that a program writes, until SIGTERM or SIGINT; credentials come from variables.",
        SAVE_OPTIONS,
        "keep",
        _save_checkpoints,
    ),
    ProgramCommand(
        "restore",
        "fetch the newest complete checkpoint, and link to it",
        "Restore the newest complete checkpoint and link to it as .resume-from; credentials come from variables.",
        RESTORE_OPTIONS,
        "path",
        _restore_checkpoint,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return guarded(PROGRAM, lambda: _main(sys.argv[1:] if argv is None else argv))


def _main(arguments: Sequence[str]) -> int:
    parser = build_parser()
    try:
        parsed = vars(parser.parse_args(arguments))
        if parsed.pop("show_version", False):
            print_line(f"{PROGRAM} {_version()}")
            return 0
        command = parsed.pop("command", None)
        if command is None:
            parser.print_help()
            return 0
        if command == "checkpoint":
            return _checkpoint(parsed.pop("action"), parsed)
        return _command_named(COMMANDS, command).run(parsed)
    except UsageError as error:
        return _refuse(error)


def _checkpoint(action: str, flags: Flags) -> int:
    return _upload_checkpoints() if action == "upload" else _command_named(CHECKPOINT_COMMANDS, action).run(flags)


def _command_named(commands: Sequence[ProgramCommand], name: str) -> ProgramCommand:
    return next(command for command in commands if command.name == name)


def build_parser() -> argparse.ArgumentParser:
    """The parser, made from `COMMANDS` and the tables of options. Values stay text, which `resolve` reads."""
    parser = Parser(prog=PROGRAM, description="Runs distributed training jobs on Kubernetes: TFJobs and TrainJobs.")
    parser.add_argument("--version", dest="show_version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND", parser_class=Parser)
    for each in COMMANDS:
        command = _add_command(commands.add_parser, each)
        if each.name == "initialize":
            command.add_argument(
                "what", choices=("dataset", "model"), help="which folder, and which kind of hf:// repository"
            )
        if each.name == "simulate":
            command.add_argument("-o", dest="output", metavar="table|json", help="short for --output")
    about = "save a TrainJob's checkpoints while it trains, or restore the newest one"
    checkpoint = commands.add_parser("checkpoint", help=about, description=f"{about[0].upper()}{about[1:]}.")
    actions = checkpoint.add_subparsers(
        dest="action", title="commands", metavar="COMMAND", required=True, parser_class=Parser
    )
    for each in CHECKPOINT_COMMANDS:
        _add_command(actions.add_parser, each)
    # What `save` starts; without a help text it is not listed.
    actions.add_parser("upload", argument_default=argparse.SUPPRESS)
    return parser


def _add_command(add: Callable[..., Parser], described: ProgramCommand) -> Parser:
    flag, variable = described.example.flag, described.example.env
    command = add(
        described.name,
        help=described.help,
        description=f"{described.description} Every flag can also be set as a variable: {flag} as {variable}.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    for option in described.options:
        _add_option(command, option)
    return command


def _add_option(parser: argparse.ArgumentParser, option: Option) -> None:
    text = option.help.replace("%", "%%")
    if option.default_text not in ("", OFF):
        text += f" Default: {option.default_text}."
    if option.kind.is_switch:
        parser.add_argument(
            option.flag, dest=option.field, nargs="?", const="true", metavar=option.kind.name, help=text
        )
    else:
        parser.add_argument(option.flag, dest=option.field, metavar=option.kind.name.upper(), help=text)


def _refuse(error: Exception) -> int:
    print_line(f"{PROGRAM}: {' '.join(str(error).split())}", sys.stderr)
    return EXIT_USAGE


def _version() -> str:
    from importlib import metadata

    return metadata.version(PROGRAM)
