"""No test leaves its logging to the next one; and what takes long to make is made once."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from localcluster.certificates import of_loopback


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    """Some tests run whole commands, which configure logging for a process that here goes on."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that is its own authority, good for 127.0.0.1 as server and as client, and its key."""
    return of_loopback(tmp_path_factory.mktemp("certificate"), "me")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of tests with the mark `anyio`, which are coroutines."""
    return "asyncio"
