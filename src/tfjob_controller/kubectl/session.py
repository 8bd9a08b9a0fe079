"""The cluster of a command, connected when it is first needed and closed at the end."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tfjob_controller.kube.names import SYSTEM_NAMESPACE
from tfjob_controller.kube.requester import DEFAULT_TIMEOUT_SECONDS, JSON
from tfjob_controller.kubectl.command import PROGRAM
from tfjob_controller.kubectl.connectionflags import REQUESTS_LEVEL, overrides_of, repeated_flags
from tfjob_controller.util.commandline import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from tfjob_controller.client.client import Client
    from tfjob_controller.client.job import Job
    from tfjob_controller.kube.config.kubeconfig import Config
    from tfjob_controller.kube.http.transport import Transport
    from tfjob_controller.kube.requester import LineStream
    from tfjob_controller.kubectl.argumenttypes import JobName

_TOO_MANY_REQUESTS = 429
# A command line of kubectl or of this plugin in a sentence, up to the name of the command.
_KUBECTL = re.compile(r"\bkubectl(?: tfjob)? (?!tfjob\b)[a-z]+")


class Session:
    """The cluster that the command line names. Every use may raise `KubeconfigError`, requests raise `ApiError`."""

    def __init__(self, parsed: Any, *, logs: bool = False) -> None:
        """With `logs` the session owns the process, and log lines go to standard error."""
        self._parsed = parsed
        self._logs = logs
        self._config: Config | None = None
        self._transport: Transport | None = None
        self._client: Client | None = None
        self._warnings: set[str] = set()

    @property
    def config(self) -> Config:
        if self._config is None:
            from tfjob_controller.kube.config.kubeconfig import find_config

            overrides = overrides_of(self._parsed)
            self._config = find_config(self._parsed.kubeconfig or None, self._parsed.context or None, overrides)
        return self._config

    @property
    def requester(self) -> _Once:
        """A requester without a rate limit and without retries after failures: a person waits who can repeat the
        command.
        """
        if self._transport is None:
            from tfjob_controller.kube.http.transport import Transport, default_user_agent
            from tfjob_controller.util.lazylog import before_first_line

            if self._logs:
                before_first_line(_log_to_standard_error)
            agent = default_user_agent().replace("tfjob-controller", "kubectl-tfjob", 1)
            reported = self._print_request if self.verbosity >= REQUESTS_LEVEL else None
            self._transport = Transport(
                self.config, qps=0, user_agent=agent, on_attempt=reported, on_warning=self.print_warning
            )
        return _Once(self._transport, getattr(self._parsed, "request_timeout", 0.0))

    @property
    def verbosity(self) -> int:
        return getattr(self._parsed, "verbosity", 0)

    def _print_request(self, verb: str, target: str, code: str, seconds: float) -> None:
        from tfjob_controller.client.text import one_line
        from tfjob_controller.util.terminal import print_line

        url = urlsplit(self.config.host)
        where = "" if target.startswith("http") else f"{url.scheme}://{url.netloc}"
        print_line(one_line(f"{verb} {where}{target} {code} in {seconds * 1000:.0f} ms"), sys.stderr)

    def print_warning(self, text: str) -> None:
        """Prints a warning to standard error, as kubectl does; once, since the children of a job have the same."""
        from tfjob_controller.kubectl.output import print_notice

        if text not in self._warnings:
            self._warnings.add(text)
            print_notice(f"Warning: {text}")

    @property
    def namespace(self) -> str:
        """The namespace of the command line, or else the context's; never empty."""
        return str(self._parsed.namespace or self.config.namespace)

    @property
    def scope(self) -> str:
        """The namespace of lists; empty for all namespaces."""
        return "" if getattr(self._parsed, "all_namespaces", False) else self.namespace

    @property
    def scope_text(self) -> str:
        return f"namespace {self.scope}" if self.scope else "any namespace"

    @property
    def has_token(self) -> bool:
        """Whether the command line has a token, which replaces the credentials of the kubeconfig."""
        return bool(getattr(self._parsed, "token", ""))

    @property
    def listing(self) -> str:
        """The command that lists the jobs among which this one looks for its own."""
        return f"`{PROGRAM} list {f'-n {self.scope}' if self.scope else '-A'}`"

    def aimed(self, text: str) -> str:
        """The text with commands of kubectl that act on the cluster of this command line, wherever they are pasted."""
        flags = repeated_flags(self._parsed)
        return _KUBECTL.sub(lambda command: command.group(0) + flags, text)

    @property
    def origin(self) -> str:
        """Where the cluster is and how that is known; "the cluster" before the first use."""
        return self._config.origin if self._config is not None else "the cluster"

    @property
    def client(self) -> Client:
        if self._client is None:
            from tfjob_controller.client.client import Client

            where = getattr(self._parsed, "controller_namespace", SYSTEM_NAMESPACE)
            self._client = Client.over(self.requester, self.namespace, self.origin, controller_namespace=where)
        return self._client

    def job(self, wanted: JobName) -> Job:
        """Raises `ClientError` if there is no such job, and `UsageError` if jobs of several kinds have the name."""
        from tfjob_controller.client.errors import AmbiguousNameError

        try:
            return self.client.job(wanted.name, wanted.kind or None)
        except AmbiguousNameError as error:
            kinds = " and ".join(f"a {kind.resource.kind}" for kind in error.kinds)
            names = " or ".join(f"{kind.word}/{wanted.name}" for kind in error.kinds)
            raise UsageError(f"{wanted.name} is {kinds}: use {names}") from None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _Once:
    """A requester that repeats a request only if the server asks for it, by 429 with Retry-After.

    The server has not processed the request then: it is overloaded, or prepares the storage of a CRD that was applied a
    moment ago. A `timeout_seconds` other than 0 is that of each request, and of a stream that has an end.
    """

    def __init__(self, transport: Transport, timeout_seconds: float) -> None:
        self._transport = transport
        self._timeout_seconds = timeout_seconds

    def request(self, method: str, path: str, **options: Any) -> bytes:
        from tfjob_controller.kube.errors import ApiError

        options["timeout_seconds"] = self._timeout_seconds or options.get("timeout_seconds", DEFAULT_TIMEOUT_SECONDS)
        deadline = monotonic() + options["timeout_seconds"]
        while True:
            try:
                return self._transport.request(method, path, **options | {"retry": False})
            except ApiError as error:
                rest_seconds = error.retry_after_seconds
                if error.status != _TOO_MANY_REQUESTS or rest_seconds is None or monotonic() + rest_seconds > deadline:
                    raise
            sleep(rest_seconds)

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        read_timeout_seconds: float,
        max_line_bytes: int = 0,
        accept: str = JSON,
    ) -> LineStream:
        has_end = not {"watch", "follow"} & set(query)
        return self._transport.stream(
            path,
            query=query,
            read_timeout_seconds=(has_end and self._timeout_seconds) or read_timeout_seconds,
            max_line_bytes=max_line_bytes,
            accept=accept,
        )

    def server_time(self) -> datetime | None:
        return self._transport.server_time()


def _log_to_standard_error() -> None:
    from tfjob_controller.telemetry import logging

    logging.configure("console", "warning")
