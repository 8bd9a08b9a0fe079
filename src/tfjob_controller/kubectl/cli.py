"""`kubectl tfjob`: the entry point of the plugin. Heavy modules are imported once the command line is valid.

Exit codes: 1 for an error of the API server or a job, 2 for an invalid command line or kubeconfig, 124 for a timeout of
`wait`, `submit --wait` or `delete --wait`, and those of `guarded`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tfjob_controller.kubectl.arguments import build_parser, command_of, parse
from tfjob_controller.kubectl.command import PROGRAM
from tfjob_controller.kubectl.output import print_error, write_utf8
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.commandline import UsageError
from tfjob_controller.util.exitcodes import EXIT_FAILED, EXIT_USAGE, guarded
from tfjob_controller.util.terminal import print_line, print_text


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the plugin and returns the exit code."""
    if argv is None:
        write_utf8(sys.stdout, sys.stderr)
    return guarded(PROGRAM, lambda: _main(sys.argv[1:] if argv is None else argv, is_process=argv is None))


def _main(argv: Sequence[str], *, is_process: bool) -> int:
    try:
        return _run(argv, is_process=is_process)
    except UsageError as error:
        print_error(str(error))
        if error.usage:
            print_text(error.usage, sys.stderr)
        return EXIT_USAGE


def _run(argv: Sequence[str], *, is_process: bool) -> int:
    if argv and argv[0] == "__complete":  # the scripts of `completion` call this command
        from tfjob_controller.kubectl.complete import print_candidates

        return print_candidates(argv[1:])
    parsed = parse(argv)
    if parsed.show_version:
        from importlib import metadata

        print_line(f"{PROGRAM} {metadata.version('tfjob-controller')}")
        return 0
    if parsed.command is None:
        build_parser(None).print_help()
        return 0
    return _run_command(parsed, is_process=is_process)


def _run_command(parsed: Any, *, is_process: bool) -> int:
    command = command_of(parsed.command)
    assert command is not None  # noqa: S101 -- the parser knows no others
    session = Session(parsed, logs=is_process)
    try:
        return command.run(session, parsed)
    except Exception as error:
        if (output := _error_output(error, session)) is None:
            raise
        message, code = output
        print_error(session.aimed(message))
        return code
    finally:
        session.close()


def _error_output(error: Exception, session: Session) -> tuple[str, int] | None:
    """Returns the message and the exit code; None for an unexpected error, which is raised again."""
    from tfjob_controller.client.errors import ClientError, error_text
    from tfjob_controller.kube.config.credentials import KubeconfigError
    from tfjob_controller.kube.errors import ApiError
    from tfjob_controller.kube.meta import PathError

    if isinstance(error, (KubeconfigError, PathError)):
        return str(error), EXIT_USAGE
    # The text of a ClientError names methods of the Python client as the remedy; here the API error is shown.
    shown = error.api_error if isinstance(error, ClientError) else error
    if isinstance(shown, ApiError):
        if shown.is_unauthorized and session.has_token:
            return (
                f"{shown.message}: the API server of {session.origin} refused the token that --token gives",
                EXIT_FAILED,
            )
        return error_text(shown, session.origin, session.listing), EXIT_FAILED
    return (str(error), EXIT_FAILED) if isinstance(error, ClientError) else None
