"""Places that people share: one person's oldest gives way to their newest, and nobody else's does.

A person is the username that the API server's review returns. Whoever may create service accounts in a namespace has
as many usernames as they like, so accounts of one namespace count together where all places are taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

HolderT = TypeVar("HolderT", bound=Hashable)
_ACCOUNT = "system:serviceaccount:"


def tenant_of(person: str) -> str:
    """The namespace's accounts for a service account; anybody else alone."""
    return person.rpartition(":")[0] if person.startswith(_ACCOUNT) else person


def namespace_of_account(person: str) -> str:
    """The namespace of a service account; empty for anybody else."""
    return person.removeprefix(_ACCOUNT).partition(":")[0] if person.startswith(_ACCOUNT) else ""


class Shares(Generic[HolderT]):
    """At most `each` places of a person and `total` of all. Not thread-safe.

    When all are taken, the tenant with the most loses its oldest; a newcomer displaces another tenant only if that
    tenant has at least as many. O(total) when a place is lost.
    """

    def __init__(self, each: int, total: int) -> None:
        self._each = each
        self._total = total
        self._persons: dict[HolderT, str] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._persons)

    def take(self, person: str, holder: HolderT) -> list[HolderT]:
        """Gives the holder the newest place. Returns the holders that lost theirs; the caller ends them."""
        lost = self._displaced(person)
        for loser in lost:
            del self._persons[loser]
        self._persons[holder] = person
        return lost

    def renew(self, holder: HolderT) -> None:
        """Makes the holder the newest of its person."""
        self._persons[holder] = self._persons.pop(holder)

    def demote(self, holder: HolderT) -> None:
        """Makes the holder the first that loses its place; one without a place stays without."""
        if (person := self._persons.pop(holder, None)) is not None:
            self._persons = {holder: person, **self._persons}

    def release(self, holder: HolderT) -> None:
        """Returns the holder's place, if it still has one."""
        self._persons.pop(holder, None)

    def _displaced(self, person: str) -> list[HolderT]:
        own = [holder for holder, other in self._persons.items() if other == person]
        if len(own) >= self._each:
            return own[:1]
        if len(self._persons) < self._total:
            return []
        tenant = tenant_of(person)
        counts = Counter(tenant_of(other) for other in self._persons.values())
        most = max(counts.values())
        of_all = [holder for holder, other in self._persons.items() if counts[tenant_of(other)] == most]
        if counts[tenant] + 1 > most:
            of_all = [holder for holder, other in self._persons.items() if tenant_of(other) == tenant] or of_all
        return of_all[:1]
