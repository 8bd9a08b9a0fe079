"""An HTTP proxy to servers with TLS."""

from __future__ import annotations

import contextlib
import socket
import threading


class ConnectProxy:
    """An HTTP proxy that supports CONNECT, and records the destinations."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.authorizations: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                request = client.recv(65536).decode()
                target = request.split(" ")[1]
                self.asked.append(target)
                lines = request.split("\r\n")
                self.authorizations += [line for line in lines if line.lower().startswith("proxy-authorization:")]
                host, _, port = target.rpartition(":")
                upstream = socket.create_connection((host, int(port)))
                client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                self._sockets += [client, upstream]
                for pair in ((client, upstream), (upstream, client)):
                    threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
