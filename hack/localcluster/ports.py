"""Free TCP ports for stacks that start at the same time.

Getting a port by binding to port 0 and closing the socket is a race: another stack, or an outgoing connection, may get
the same one before the program listens. So ports come from below the range of outgoing connections, and are reserved by
a locked file while the programs start; from then on the listening socket itself is the reservation.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from localcluster.errors import LocalClusterError

# Above the well-known servers, below 32768 where Linux's outgoing connections begin.
FIRST_PORT = 18000
LAST_PORT = 32000
_ATTEMPTS = 1000


@contextlib.contextmanager
def reserve(count: int, address: str = "127.0.0.1") -> Iterator[list[int]]:
    """Yields `count` ports that are free on `address` and on loopback, and reserves them until the end of the block."""
    with contextlib.ExitStack() as locks:
        ports: list[int] = []
        for port in random.sample(range(FIRST_PORT, LAST_PORT), _ATTEMPTS):
            if len(ports) == count:
                break
            if _lock(port, locks) and is_free(port, address) and is_free(port, "127.0.0.1"):
                ports.append(port)
        if len(ports) < count:
            raise LocalClusterError(f"no {count} free ports between {FIRST_PORT} and {LAST_PORT}; stop other servers")
        yield ports


def is_free(port: int, address: str) -> bool:
    """Reports whether nothing listens on the port. Connections in TIME_WAIT do not count, since servers ignore them."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _lock(port: int, locks: contextlib.ExitStack) -> bool:
    descriptor = os.open(_folder() / str(port), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    locks.callback(os.close, descriptor)
    return True


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"localcluster-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
