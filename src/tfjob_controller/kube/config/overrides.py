"""What a caller sets instead of the kubeconfig, as the connection flags of kubectl do.

As in client-go, a flag replaces a field of the chosen cluster or user and leaves the others. There is one exception:
a token replaces all credentials of the user, because a server that gets a client certificate too ignores the token.
Source: client-go tools/clientcmd/client_config.go (getCluster, getAuthInfo) and validation.go,
transport/round_trippers.go.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfjob_controller.kube.config.credentials import AuthInfo, CredentialSource, KubeconfigError, bearer_header

_AUTHORITY_FIELDS = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
IMPERSONATION_FIELDS = ("as", "as-uid", "as-groups")


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user as whom requests act; without a user, they act as the one with the credentials."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The lines of the header. Raises `KubeconfigError` if they cannot be sent."""
        values = (("User", self.user), ("Uid", self.uid), *(("Group", group) for group in self.groups))
        if not self.user and (self.uid or self.groups):
            raise KubeconfigError("a UID or a group to act as needs a user: name it with --as")
        if not all(value.isprintable() for _, value in values):
            raise KubeconfigError("the name of a user or group to act as has a character that no header may have")
        # Go sends the bytes of UTF-8, and a request is encoded as Latin-1.
        return tuple((f"Impersonate-{name}", value.encode().decode("latin-1")) for name, value in values if value)


def impersonation_of(user: Mapping[str, Any]) -> Impersonation:
    """The impersonation of a user entry."""
    return Impersonation(
        str(user.get("as") or ""), str(user.get("as-uid") or ""), tuple(map(str, user.get("as-groups") or ()))
    )


NO_IMPERSONATION = Impersonation()


@dataclass(frozen=True, slots=True)
class ConfigOverrides:
    """Empty fields override nothing. `authority_file` is relative to the working directory."""

    cluster: str = ""
    user: str = ""
    server: str = ""
    authority_file: str = ""
    skips_verification: bool = False
    token: str = field(default="", repr=False)
    impersonation: Impersonation = NO_IMPERSONATION

    @property
    def token_source(self) -> CredentialSource | None:
        """Raises `KubeconfigError` if the token cannot be sent."""
        if not self.token:
            return None
        given = AuthInfo(bearer_header(self.token, "--token"))
        return lambda: given

    def context_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        chosen = {"cluster": self.cluster, "user": self.user}
        return {**entry, **{name: value for name, value in chosen.items() if value}}

    def cluster_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        changed = dict(entry)
        if self.server:
            changed.pop("tls-server-name", None)
            changed["server"] = self.server
        if self.authority_file or self.skips_verification:
            for name in _AUTHORITY_FIELDS:
                changed.pop(name, None)
        if self.authority_file:
            changed["certificate-authority"] = os.path.abspath(self.authority_file)
        if self.skips_verification:
            changed["insecure-skip-tls-verify"] = True
        return changed

    def user_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        given = self.impersonation
        changed = dict(entry)
        if self.token:
            # One that is refused is kept, too: without it the user could have more permissions than intended.
            kept = (*IMPERSONATION_FIELDS, "as-user-extra")
            changed = {name: changed[name] for name in kept if name in changed} | {"token": self.token}
        acting: dict[str, Any] = {"as": given.user, "as-uid": given.uid, "as-groups": list(given.groups)}
        return {**changed, **{name: value for name, value in acting.items() if value}}


NO_OVERRIDES = ConfigOverrides()
