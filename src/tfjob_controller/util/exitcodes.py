"""Exit codes of the command lines, and how a program ends by its user, its reader or a full disk."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from tfjob_controller.util.terminal import print_line

# The last two are those that a shell shows after SIGINT and SIGPIPE.
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 1, 2, 130, 141
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def guarded(program: str, run: Callable[[], int]) -> int:
    """Runs a program and returns its exit code, also if it is interrupted or its output cannot be written."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _close_standard_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.errno not in _NOT_WRITTEN:
            raise
        _close_standard_output()
        print_line(f"{program}: cannot write the output: {error.strerror}", sys.stderr)
        return EXIT_FAILED


def _close_standard_output() -> None:
    """Redirects output that cannot be written, since Python would report an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
