"""Log lines: one JSON object for each event, or coloured text for people.

Every line has `timestamp` (RFC 3339, UTC), `level`, `logger` and `event`, and the values that its thread has bound
before: `reconcile_id`, `key` and `uid` while a job is reconciled. Lines that libraries log through the standard library
have the same form. Only their warnings and errors are logged, since lower levels are about connections.

Never give a logger a request's headers, a kubeconfig's content or a whole object: this module does not filter secrets.
For the same reason tracebacks omit the values of variables.

A line that cannot be written (a full disk, a closed pipe) is dropped without an error: a program must not fail because
of its log.

Names, messages and reasons are untrusted. In JSON they are escaped to ASCII; in text for people, `_harmless` escapes
them.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from typing import TextIO, cast

import structlog
from structlog.typing import Processor

from tfjob_controller.util.text import CONTROL_CHARACTERS, escape

# All control characters but the tab, and surrogates, which no stream can encode.
_RULES = re.compile(f"[\x00-\x08\x0a-\x1f{CONTROL_CHARACTERS}\ud800-\udfff]")

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(log_format: str = "json", log_level: str = "info", stream: TextIO | None = None) -> None:
    """Set up logging for the process; `stream` is standard error unless given. May be called again."""
    stream = stream or sys.stderr
    lossy = cast("TextIO", _LossyStream(stream))
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderers = _renderers(log_format, stream)
    structlog.configure(
        processors=[_add_logger_name, *shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[log_level]),
        logger_factory=_NamedLoggerFactory(lossy),
        # Modules get their loggers on import, before this function runs; they read the configuration at their first
        # line.
        cache_logger_on_first_use=False,
    )
    _route_standard_library([structlog.stdlib.add_logger_name, *shared], renderers, lossy)


def _renderers(log_format: str, stream: TextIO) -> list[Processor]:
    if log_format == "console":
        return [
            structlog.processors.format_exc_info,
            _harmless,
            structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback),
        ]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _harmless(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escapes values, so that none can begin a new line or control a terminal.

    The lines of a traceback are indented.
    """
    shown = {_seen(name): _seen(value) if isinstance(value, str) else value for name, value in event.items()}
    if isinstance(traceback := event.get("exception"), str):
        shown["exception"] = "\n".join(f"  {_seen(line)}" for line in traceback.split("\n"))
    return shown


def _seen(text: str) -> str:
    return _RULES.sub(lambda match: escape(match[0]), text)


class _LossyStream:
    """The methods of a stream that loggers use, without OSErrors: a line that cannot be written is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class _NamedLogger:
    """Writes whole lines, with the name that `get_logger(__name__)` was given. Safe from any thread."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self.name = name
        writer = structlog.WriteLogger(stream)
        self.debug = self.info = self.warning = self.error = self.critical = writer.msg
        self.exception = self.msg = writer.msg


class _NamedLoggerFactory:
    """Creates the loggers: structlog calls it with the arguments of `get_logger`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, name: str = "", *_: object) -> _NamedLogger:
        return _NamedLogger(name, self._stream)


def _add_logger_name(logger: _NamedLogger, _: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event["logger"] = logger.name
    return event


def _route_standard_library(foreign: list[Processor], renderers: list[Processor], stream: TextIO) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=foreign,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
