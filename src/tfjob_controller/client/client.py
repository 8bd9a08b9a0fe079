"""The client: gets, lists and submits jobs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfjob_controller.client.discovery import explained, is_left_out
from tfjob_controller.client.errors import LISTING, AmbiguousNameError, ClientError
from tfjob_controller.client.job import Job, Jobs, job_table
from tfjob_controller.client.kinds import Snapshot
from tfjob_controller.client.reader import Connection
from tfjob_controller.client.validation import check_children, validate_manifest
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.client import DRY_RUN, STRICT
from tfjob_controller.kube.errors import NOT_FOUND_REASON, ApiError
from tfjob_controller.kube.names import SYSTEM_NAMESPACE
from tfjob_controller.kube.requester import Requester, server_now
from tfjob_controller.util.clock import Clock, RealClock

_LISTING = "`client.jobs(all_namespaces=True)`"


class Client:
    """The jobs of one cluster, with the rights of a kubeconfig or, in a pod, of its service account.

    `namespace` is used where a call names none; default: that of the context. The controller and the gang scheduler are
    installed in `controller_namespace`. Every call raises `ClientError`.
    Thread-safe, and so are the `Job`s that it returns; `close`, or the end of `with`, ends requests in flight.
    """

    def __init__(
        self,
        kubeconfig: str | None = None,
        context: str | None = None,
        namespace: str | None = None,
        controller_namespace: str = SYSTEM_NAMESPACE,
    ) -> None:
        # These load the Kubernetes client, which takes a while.
        from tfjob_controller.kube.config.credentials import KubeconfigError
        from tfjob_controller.kube.config.kubeconfig import load_config
        from tfjob_controller.kube.http.transport import Transport

        try:
            config = load_config(kubeconfig, context)
        except KubeconfigError as error:
            raise ClientError(str(error)) from None
        transport = Transport(config, qps=0, user_agent="tfjob-client", on_warning=warnings.warn)
        self._connection = Connection(
            transport, namespace or config.namespace, config.origin, _LISTING, controller_namespace
        )
        self._close: Callable[[], None] = transport.close

    @classmethod
    def over(
        cls,
        requester: Requester,
        namespace: str,
        origin: str = "this client",
        listing: str = LISTING,
        controller_namespace: str = SYSTEM_NAMESPACE,
        clock: Clock | None = None,
    ) -> Client:
        """A client over a transport that the caller closes.

        For errors: `origin` describes the address of the server, `listing` is the command or call that lists jobs.
        """
        client = cls.__new__(cls)
        client._connection = Connection(
            requester, namespace, origin, listing, controller_namespace, clock or RealClock()
        )
        client._close = lambda: None
        return client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._connection.origin}, namespace {self.namespace}>"

    @property
    def namespace(self) -> str:
        """The namespace of calls that name none."""
        return self._connection.namespace

    def kinds(self, word: str | None = None) -> Sequence[ClientKind]:
        """The kinds of that name, or all that the cluster serves: at most one for each word.

        Those of this project may not be installed.
        """
        with self._connection.client_errors():
            return self._connection.kinds_named(word)

    def close(self) -> None:
        """Close all connections; calls that wait in other threads fail."""
        self._close()

    def jobs(
        self,
        namespace: str | None = None,
        all_namespaces: bool = False,
        kind: str | None = None,
        label_selector: str = "",
    ) -> Jobs:
        """The jobs of a namespace, sorted by name; of all kinds unless `kind` is one, such as tfjob or pytorchjob.

        `label_selector` narrows them, such as "team=vision". Without `kind`, kinds are left out that the cluster does
        not have, and those that the user may not list, unless these are all.
        """
        where = "" if all_namespaces else namespace or self.namespace
        snapshots: list[Snapshot] = []
        refusals: list[ApiError] = []
        with self._connection.client_errors():
            kinds = self._connection.kinds_named(kind)
            for client_kind in kinds:
                try:
                    snapshots += self._connection.of(client_kind).list(where, label_selector)
                except ApiError as error:
                    if not is_left_out(error):
                        raise
                    refusals.append(error)
                else:
                    if kind is not None:  # a cluster serves one API of a kind
                        break
            if len(refusals) == len(kinds):
                if kind is not None:
                    raise explained(kinds[0], refusals[0])
                if forbidden := [error for error in refusals if error.is_forbidden]:
                    raise forbidden[0]
        snapshots.sort(key=lambda snapshot: (snapshot.metadata.namespace, snapshot.metadata.name, snapshot.kind.word))
        now = server_now(self._connection.requester)
        return job_table([Job(self._connection, snapshot) for snapshot in snapshots], now)

    def job(self, name: str, kind: str | None = None, namespace: str | None = None) -> Job:
        """The job of that name. `kind` is required where several kinds have one."""
        where = namespace or self.namespace
        refusals: list[ApiError] = []
        snapshots: list[Snapshot] = []
        with self._connection.client_errors():
            kinds = self._connection.kinds_named(kind)
            for client_kind in kinds:
                try:
                    snapshots.append(self._connection.of(client_kind).get(where, name))
                    if kind is not None:
                        break
                except ApiError as error:
                    if not is_left_out(error):
                        raise
                    refusals.append(error)
            if not snapshots:
                raise _not_found(refusals, kinds, name, where)
        if len(snapshots) > 1:
            found = tuple(snapshot.kind for snapshot in snapshots)
            kinds_text = " and ".join(kind.word for kind in found)
            raise AmbiguousNameError(f"{where} has a {kinds_text} called {name}: specify the kind", found)
        return Job(self._connection, snapshots[0])

    def submit(
        self, manifest: Mapping[str, Any], dry_run: bool = False, warn: Callable[[str], None] | None = None
    ) -> Job:
        """Create a job from a manifest, such as `tfjob()` and `trainjob()` build.

        An invalid manifest is refused before it is sent, and so is one with a runtime or framework that the cluster
        lacks, or with pods that Kubernetes would refuse, as far as the user may read runtimes and create Jobs, or pods
        for a job of kubeflow.org/v1. With `dry_run` the server only returns the job that it would create. Pods that
        admission would refuse for now, such as those beyond a quota, are a warning, which `warn` gets, or else Python's
        `warnings`.
        """
        sent = validate_manifest(manifest, self.namespace)
        query = STRICT | (DRY_RUN if dry_run else {})
        with self._connection.client_errors():
            try:
                found = check_children(self._connection.requester, sent)
            except ClientError:
                # If the job itself is wrong, the server's message names its field.
                self._connection.create(sent.kind, sent.namespace, sent.body, STRICT | DRY_RUN)
                raise
            for text in found:
                if warn is None:
                    warnings.warn(text, stacklevel=2)
                else:
                    warn(text)
            return Job(self._connection, self._connection.create(sent.kind, sent.namespace, sent.body, query))


def _not_found(
    refusals: Sequence[ApiError], kinds: Sequence[ClientKind], name: str, namespace: str
) -> ApiError | ClientError:
    """The server's own message, unless several kinds exist in the cluster and were looked up.

    `refusals` are those of `kinds`, one for each.
    """
    pairs = list(zip(kinds, refusals, strict=True))
    by_name = [(kind, error) for kind, error in pairs if error.is_not_found and not error.is_unknown_kind]
    if len(by_name) <= 1:
        refused = [(kind, error) for kind, error in pairs if error.is_forbidden]
        return explained(*[*by_name, *refused, *pairs][0])
    *others, last = (f"no {kind.resource.kind}" for kind, _ in by_name)
    message = f'{", ".join(others)} and {last} with the name "{name}" found in namespace "{namespace}"'
    return ApiError(404, NOT_FOUND_REASON, message)
