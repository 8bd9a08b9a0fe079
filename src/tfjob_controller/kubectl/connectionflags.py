"""The flags that choose a cluster and an identity there, which every command with a cluster has, as kubectl's do.

They may stand before the command. Commands in messages repeat those that decide on which cluster, and as whom, the
command acts; never the token.
Source: cli-runtime pkg/genericclioptions/config_flags.go.
"""

from __future__ import annotations

import argparse
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfjob_controller.kubectl.argumenttypes import count_argument, duration_argument, namespace_argument, token_argument

if TYPE_CHECKING:
    from tfjob_controller.kube.config.overrides import ConfigOverrides

# The level from which kubectl prints requests.
REQUESTS_LEVEL = 6
# The flags that stand in place of a command.
ROOT_FLAGS = ("-h", "--help", "--version")


@dataclass(frozen=True, slots=True)
class _OptionalValue:
    """A flag that may stand alone, and what it means then; a word after it that matches `values` is its value."""

    name: str
    alone: str
    values: re.Pattern[str]


_VERBOSITY = _OptionalValue("--v", str(REQUESTS_LEVEL), re.compile(r"[0-9]+"))
_DRY_RUN = _OptionalValue("--dry-run", "client", re.compile("none|client|server"))
_OPTIONAL = {"-v": _VERBOSITY, "--v": _VERBOSITY, "--dry-run": _DRY_RUN}
_TOKEN = "--token"  # noqa: S105 -- the flag
# By attribute. Those that messages repeat, in their order.
_REPEATED = (
    "kubeconfig",
    "context",
    "cluster",
    "user",
    "server",
    "certificate_authority",
    "insecure_skip_tls_verify",
    "as_user",
    "as_uid",
    "as_group",
)


def add_connection_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("connection", "As for kubectl; they may precede the command.").add_argument
    add("-n", "--namespace", default="", type=namespace_argument, metavar="NAME", help="default: the context's")
    add("--kubeconfig", default="", metavar="FILE", help="path of the kubeconfig; default: as for kubectl")
    add("--context", default="", metavar="NAME", help="context of the kubeconfig; default: the current context")
    add("--cluster", default="", metavar="NAME", help="cluster of the kubeconfig; default: the context's")
    add("--user", default="", metavar="NAME", help="user of the kubeconfig; default: the context's")
    add("-s", "--server", default="", metavar="URL", help="URL of the API server; default: the cluster's")
    add("--certificate-authority", default="", metavar="FILE", help="CA of the API server; default: the cluster's")
    insecure = "do not verify the certificate of the API server, so that the connection can be intercepted"
    add("--insecure-skip-tls-verify", action="store_true", help=insecure)
    add("--token", type=token_argument, metavar="TOKEN", help="token to use in place of the user's credentials")
    add("--as", dest="as_user", default="", metavar="USER", help="act as this user, or system:serviceaccount:NS:NAME")
    add(
        "--as-group",
        action="append",
        default=[],
        metavar="GROUP",
        help="act as a member of this group; can be repeated",
    )
    add("--as-uid", default="", metavar="UID", help="act with this UID")
    limit = "limit of one request, except watches and followed logs; default, and for 0: that of the command"
    add("--request-timeout", type=duration_argument, default=0.0, metavar="DURATION", help=limit)
    lines = f"explain: all events; from {REQUESTS_LEVEL} on, and without a level, standard error names each request"
    add("-v", "--v", dest="verbosity", type=count_argument, default=0, metavar="LEVEL", help=lines)


def with_values(argv: Sequence[str]) -> list[str]:
    """Gives each flag whose value is optional its value: argparse would take the next argument for it."""
    arguments: list[str] = []
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        if (flag := _OPTIONAL.get(argument)) is not None:
            argument = f"{flag.name}={rest.pop(0) if rest and flag.values.fullmatch(rest[0]) else flag.alone}"
        arguments.append(argument)
    return arguments


def command_first(argv: Sequence[str]) -> Sequence[str]:
    """Moves connection flags behind the command; as for kubectl, they may stand before it.

    A flag that stands in place of a command needs no cluster, so that those before it are left out. Returns nothing if
    there is no command.
    """
    parser = ArgumentParser(add_help=False)
    add_connection_flags(parser)
    # argparse has no public way to ask for these.
    actions, index = parser._option_string_actions, 0
    while index < len(argv) and argv[index].startswith("-"):
        flag, equals, _ = argv[index].partition("=")
        if flag in ROOT_FLAGS:
            return argv[index:]
        action = actions.get(flag)
        if action is None and not flag.startswith("--"):
            # A value may follow a short flag without a space: `-nteam`.
            action, equals = actions.get(flag[:2]), flag[2:]
        if action is None:
            # The error is about this flag; with an empty token before it, it may be the token.
            return argv if has_token(argv) else argv[index:]
        index += 1 if equals or action.nargs == 0 else 2
    return [argv[index], *argv[:index], *argv[index + 1 :]] if index < len(argv) else []


def has_token(arguments: Iterable[str]) -> bool:
    """Whether one of the arguments may be a token, so that none may be shown."""
    return any(argument.startswith(_TOKEN) for argument in arguments)


def overrides_of(parsed: argparse.Namespace) -> ConfigOverrides:
    from tfjob_controller.kube.config.overrides import ConfigOverrides, Impersonation

    def text(name: str) -> str:
        return str(getattr(parsed, name, "") or "")

    acting = Impersonation(text("as_user"), text("as_uid"), tuple(getattr(parsed, "as_group", None) or ()))
    return ConfigOverrides(
        cluster=text("cluster"),
        user=text("user"),
        server=text("server"),
        authority_file=text("certificate_authority"),
        skips_verification=bool(getattr(parsed, "insecure_skip_tls_verify", False)),
        token=text("token"),
        impersonation=acting,
    )


def repeated_flags(parsed: argparse.Namespace) -> str:
    """The flags as they were given, quoted for a shell; each after a space."""
    return "".join(_repeated(name, getattr(parsed, name, None)) for name in _REPEATED)


def _repeated(name: str, value: Any) -> str:
    flag = "--as" if name == "as_user" else f"--{name.replace('_', '-')}"
    if value is True:
        return f" {flag}"
    if isinstance(value, list):
        return "".join(f" {flag}={shlex.quote(member)}" for member in value)
    return f" {flag}={shlex.quote(value)}" if value else ""
