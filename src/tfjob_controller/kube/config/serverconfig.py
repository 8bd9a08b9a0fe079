"""An API server as connections need to know it: its URL, how its identity is verified, and the proxy in between."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from urllib3.util import create_urllib3_context


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One API server.

    `authority_file` is read for each new connection, so that a renewed one is seen; `authority` is a PEM text. Without
    both, the system's authorities decide. `name` replaces the URL's host name in TLS. `certificate` is the files of a
    client certificate and its key, `proxy` a URL or empty.
    """

    url: str
    authority_file: str = ""
    authority: str = ""
    verifies: bool = True
    name: str = ""
    certificate: tuple[str, str] | None = None
    proxy: str = field(default="", repr=False)
    proxy_headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def tls_context(self, certificate: tuple[str, str] | None) -> ssl.SSLContext:
        """Settings for one TLS connection that presents `certificate`, else the server's own. Raises OSError."""
        context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if self.verifies else ssl.CERT_NONE)
        if self.authority_file:
            context.load_verify_locations(self.authority_file)
        elif self.authority:
            context.load_verify_locations(cadata=self.authority)
        elif self.verifies:
            context.load_default_certs()
        if shown := certificate or self.certificate:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(*shown, password="")
        return context
