"""Loggers for modules that a command line loads: structlog brings rich along, which takes longer than a request.

They are structlog's own from their first line on, so configuration and capture in tests work as with any other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_before_first: list[Callable[[], None]] = []


def get_logger(name: str) -> Any:
    """As `structlog.get_logger`."""
    return _LazyLogger(name)


def before_first_line(configure: Callable[[], None]) -> None:
    """Call this once, when the first line comes: for whoever would not load structlog just to configure it."""
    _before_first[:] = [configure]


class _LazyLogger:
    """Any thread may use it."""

    __slots__ = ("_logger", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._logger: Any = None

    def debug(self, event: str, **values: Any) -> None:
        """Nothing where nobody has loaded structlog: then nobody has asked for such lines either."""
        if self._logger is not None or "structlog" in sys.modules:
            self.__getattr__("debug")(event, **values)

    def __getattr__(self, attribute: str) -> Any:
        if self._logger is None:
            import structlog

            while _before_first:
                _before_first.pop()()
            self._logger = structlog.get_logger(self._name)
        return getattr(self._logger, attribute)
