"""Loggers that import structlog with their first line: it imports rich, which takes longer than a command's request.

They behave as structlog's own from the first line on, including configuration and capture in tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_before_first: list[Callable[[], None]] = []


def get_logger(name: str) -> Any:
    """Returns a logger, as `structlog.get_logger` does."""
    return _LazyLogger(name)


def before_first_line(configure: Callable[[], None]) -> None:
    """Call `configure` once before the first line, so that structlog is not imported only to be configured."""
    _before_first[:] = [configure]


class _LazyLogger:
    """Thread-safe."""

    __slots__ = ("_logger", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._logger: Any = None

    def debug(self, event: str, **values: Any) -> None:
        """Write nothing if structlog is not imported, because debug lines are then not enabled."""
        if self._logger is not None or "structlog" in sys.modules:
            self.__getattr__("debug")(event, **values)

    def __getattr__(self, attribute: str) -> Any:
        if self._logger is None:
            import structlog

            while _before_first:
                _before_first.pop()()
            self._logger = structlog.get_logger(self._name)
        return getattr(self._logger, attribute)
