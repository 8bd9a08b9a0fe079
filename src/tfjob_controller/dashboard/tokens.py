"""People who log in with a token of the cluster: each token becomes a connection with exactly that token.

The dashboard has no rights of its own. A token is verified by a SelfSubjectReview, which also tells the name of its
owner, and is kept in memory as long as a browser has a session with it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.text import one_line
from tfjob_controller.dashboard.users import User, username_of
from tfjob_controller.kube.config.credentials import AuthInfo, Credentials, KubeconfigError, bearer_header
from tfjob_controller.kube.config.kubeconfig import Config
from tfjob_controller.kube.config.serverconfig import ServerConfig
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.util.clock import Clock

MAX_TOKEN = 16_384
# Connections of one person; requests beyond them wait.
_POOL_SIZE = 8
# Lists are read in smaller pages then, and no object has as many.
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_BEARER = "bearer "


def token_of_header(value: str) -> str:
    """The token in a header's value, with or without `Bearer`."""
    value = value.strip()
    return value[len(_BEARER) :].strip() if value.lower().startswith(_BEARER) else value


def identity_of(token: str) -> str:
    """Returns the key that represents a token where the token itself must not be stored."""
    return hashlib.sha256(token.encode()).hexdigest()


class TokenUsers:
    """Makes the connections of people from their tokens. Thread-safe.

    Sessions with the same token share a connection. Each connection has a session, so the bounds of sessions hold for
    connections as well, also for each person.
    """

    def __init__(self, server: ServerConfig, clock: Clock, controller_namespace: str) -> None:
        self._server = server
        self._clock = clock
        self._controller_namespace = controller_namespace
        self._lock = threading.Lock()
        self._users: dict[str, User] = {}

    def user(self, token: str) -> User:
        """Raises `ClientError` for a token that the API server does not accept."""
        if len(token) > MAX_TOKEN:
            raise ClientError(f"the token is too long: at most {MAX_TOKEN} characters")
        identity = identity_of(token)
        with self._lock:
            if (known := self._users.get(identity)) is not None:
                return known
        transport = self._transport(token)
        try:
            person = username_of(transport)
        except ApiError as error:
            transport.close()
            why = "the cluster does not accept this token" if error.is_unauthorized else one_line(error.message)
            raise ClientError(why) from None
        with self._lock:
            if (known := self._users.get(identity)) is not None:
                transport.close()
                return known
            closing = self._closing(identity, transport)
            user = User(
                identity,
                transport,
                "",
                one_line(person),
                self._clock,
                closing,
                person=person,
                controller_namespace=self._controller_namespace,
                is_namespace_chosen=False,
            )
            self._users[identity] = user
        return user

    def _transport(self, token: str) -> Transport:
        try:
            header = bearer_header(token, "the form")
        except KubeconfigError as error:
            raise ClientError(str(error)) from None
        credentials = Credentials(lambda: AuthInfo(header), self._clock)
        config = Config(self._server, "default", "the cluster", credentials)
        return Transport(
            config,
            qps=0,
            pool_size=_POOL_SIZE,
            user_agent="tfjob-dashboard",
            clock=self._clock,
            max_response_bytes=MAX_RESPONSE_BYTES,
        )

    def _closing(self, identity: str, transport: Transport) -> Callable[[], None]:
        def close() -> None:
            with self._lock:
                if (user := self._users.get(identity)) is not None and user.requester is transport:
                    del self._users[identity]
            transport.close()

        return close
