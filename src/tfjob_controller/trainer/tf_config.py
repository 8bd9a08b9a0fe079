"""TF_CONFIG: how a replica learns of its fellows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

TF_CONFIG = "TF_CONFIG"


class _Role(Protocol):
    @property
    def name(self) -> str: ...


class Task(Protocol):
    """A replica as far as TF_CONFIG names it; role names are in lower case."""

    @property
    def role(self) -> _Role: ...
    @property
    def index(self) -> int: ...


class _Served(_Role, Protocol):
    @property
    def port(self) -> int: ...


class Peer(Protocol):
    """A replica that others reach; a protocol too, so that what is told of clusters does not know plans."""

    @property
    def role(self) -> _Served: ...
    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str: ...


def tf_config_environment(cluster: Mapping[str, Sequence[str]]) -> Callable[[Task], Mapping[str, str]]:
    """The variables of each replica, given the addresses (`host:port`) of all by role, in the order of their indexes.

    The part that all replicas share is written once: with N replicas each TF_CONFIG has N addresses.
    """
    shared = json.dumps(dict(sorted(cluster.items())), separators=(",", ":"))

    def environment(task: Task) -> Mapping[str, str]:
        own = f'"task":{{"type":"{task.role.name}","index":{task.index}}}'
        return {TF_CONFIG: f'{{"cluster":{shared},{own},"environment":"cloud"}}'}

    return environment


def environment_of(replicas: Iterable[Peer]) -> Callable[[Task], Mapping[str, str]]:
    """What each replica's training container is told of these."""
    cluster: dict[str, list[str]] = {}
    for replica in sorted(replicas, key=lambda replica: replica.index):
        cluster.setdefault(replica.role.name, []).append(f"{replica.name}:{replica.role.port}")
    return tf_config_environment(cluster)
