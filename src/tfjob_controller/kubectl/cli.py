"""`kubectl tfjob`: the plugin's way in. Heavy imports wait until the command line is known to be good.

Exit codes: 1 when the API server or a job stands in the way, 2 for a command line or kubeconfig that cannot be used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from tfjob_controller.kubectl.arguments import PROGRAM, UsageError, build_parser

EXIT_FAILED = 1
EXIT_USAGE = 2
# As a shell shows a program that SIGINT or SIGPIPE ended.
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plugin; returns the exit code."""
    parser = build_parser()
    try:
        parsed = parser.parse_args(sys.argv[1:] if argv is None else argv)
    except UsageError as error:
        return _refuse(str(error), EXIT_USAGE)
    if parsed.show_version:
        print(f"{PROGRAM} {_version()}")
        return 0
    if parsed.command is None:
        parser.print_help()
        return 0
    if argv is None:  # this is the process: its standard output is for answers alone
        _log_to_standard_error()
    return _connected(parsed)


def _log_to_standard_error() -> None:
    from tfjob_controller.telemetry import logging

    logging.configure("console", "warning")


def _connected(parsed: Any) -> int:
    from tfjob_controller.kube.config import ConfigError, load_config
    from tfjob_controller.kube.errors import ApiError
    from tfjob_controller.kube.transport import Transport, default_user_agent
    from tfjob_controller.kubectl.errors import CommandError, in_words

    try:
        config = load_config(parsed.kubeconfig or None, parsed.context or None)
    except ConfigError as error:
        return _refuse(str(error), EXIT_USAGE)
    agent = default_user_agent().replace("tfjob-controller", "kubectl-tfjob", 1)
    transport = Transport(config, qps=0, user_agent=agent)
    try:
        code = _carry_out(parsed, transport, parsed.namespace or config.namespace)
        sys.stdout.flush()  # here, where a reader that is gone is no surprise
        return code
    except CommandError as error:
        return _refuse(str(error), EXIT_FAILED)
    except ApiError as error:
        return _refuse(in_words(error, config.origin), EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _close_standard_output()
        return EXIT_BROKEN_PIPE
    finally:
        transport.close()


def _carry_out(parsed: Any, transport: Any, namespace: str) -> int:
    from tfjob_controller.kubectl import commands

    if parsed.command == "list":
        return commands.show_list(transport, "" if parsed.all_namespaces else namespace, parsed.output)
    if parsed.command == "describe":
        return commands.show_job(transport, namespace, parsed.name, parsed.output)
    if parsed.command == "queue":
        return commands.show_queue(transport, "" if parsed.all_namespaces else namespace, parsed.output)
    return commands.show_logs(transport, namespace, parsed.name, parsed)


def _close_standard_output() -> None:
    """Whoever read has seen enough (`| head`); Python would complain once more when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(words: str, code: int) -> int:
    print(f"{PROGRAM}: {' '.join(words.split())}", file=sys.stderr)
    return code


def _version() -> str:
    from importlib import metadata

    return metadata.version("tfjob-controller")
