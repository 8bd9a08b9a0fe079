"""Recognizes that another client keeps reverting what the controller writes to the children of a job.

The controller is level-triggered: it writes a child again whenever the child differs from the plan. If another client
(a queue that manages the child Jobs itself, a policy engine, a script) reverts each write, the two would write for
ever, and each round may create and delete pods. A change is reverted if the same value must be written to the same
child again, although the controller has written no other value in between:

| write | reverted when |
|---|---|
| suspend or resume of a Job (or its replacement by one that runs) | the Job must be suspended (or resumed) again |
| patch of a child | the same fields must get the same values again |
| create | a child that the controller has not deleted must be created again, or its labels must be restored |

The first two writes are sent at once, since a user may revert one by mistake. Each further one waits for a delay that
doubles from `FIRST_DELAY_SECONDS` to `MAX_DELAY_SECONDS`. While a resume waits, no Job of the job is resumed: a few
replicas would only wait for the others. Changes count as accepted `ACCEPTED_SECONDS` after their last write.

What is kept is in memory, and bounded by the number of children that were changed lately. A process that takes over a
job whose status reports reverted changes begins with a delay.

Not thread-safe: a tracker belongs to one job, which is synced by one thread at a time. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tfjob_controller.api.common.core import JOBS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from tfjob_controller.jobs.actions.model import Actions, Create, Delete, Patch, SetSuspend
from tfjob_controller.kube.meta import Object, Resource

# The number of equal writes that do not wait.
_FREE_WRITES = 2
FIRST_DELAY_SECONDS = 60.0
MAX_DELAY_SECONDS = 600.0
ACCEPTED_SECONDS = 60.0

# They are created again whenever the controller has forgotten them, not because somebody has deleted them.
_UNWATCHED = frozenset((SECRETS, PERSISTENT_VOLUME_CLAIMS))

_Key: TypeAlias = tuple[Resource[Object], str, tuple[str, ...]]
_SUSPEND = ("spec.suspend",)
# No field: the existence of the child.
_EXISTS: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RevertedChange:
    """A change that another client keeps reverting; `fields` are paths, and empty if the child is deleted.

    `editor` is the field manager that wrote the field last, or `ADMISSION`; empty if it is not known.
    """

    resource: Resource[Object]
    name: str
    fields: tuple[str, ...]
    value: Any
    editor: str = ""


@dataclass(slots=True)
class _Entry:
    value: Any
    writes: int
    written_at: float
    # When the planner last requested the write that is on record.
    requested_at: float
    is_reverted: bool = False
    is_waiting: bool = False
    editor: str | None = None

    @property
    def delay_seconds(self) -> float:
        """How long the next equal write waits after the last one."""
        if self.writes < _FREE_WRITES:
            return 0.0
        return min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(10, self.writes - _FREE_WRITES))

    @property
    def seen_at(self) -> float:
        return max(self.written_at, self.requested_at)


class ChangeTracker:
    """Counts equal writes to the children of one job, and delays those that another client reverts."""

    def __init__(self, *, was_reverted: bool = False) -> None:
        """`was_reverted`: an earlier process has recorded that changes of this job are reverted."""
        self._entries: dict[_Key, _Entry] = {}
        self._must_wait_first = was_reverted

    def allowed(self, actions: Actions, now: float, *, has_lost_children: bool) -> Actions:
        """Returns the actions without those that must wait.

        `has_lost_children`: children that existed are missing, so that a create replaces one.
        """
        self._forget_old(now)
        held = {key for key, value in self._changes(actions, has_lost_children) if self._must_wait(key, value, now)}
        self._must_wait_first = False
        for key, entry in self._entries.items():
            entry.is_waiting = key in held
            entry.is_reverted &= entry.is_waiting or now < entry.seen_at + ACCEPTED_SECONDS
        return _without(actions, held) if held else actions

    def record(
        self,
        *,
        now: float,
        has_lost_children: bool,
        created: Iterable[Create] = (),
        deleted: Iterable[Delete] = (),
        changed: Iterable[SetSuspend | Patch] = (),
    ) -> None:
        """Records writes that have succeeded; `created` includes children whose labels were restored."""
        deletes = tuple(deleted)
        written = Actions(
            creates=tuple(created),
            deletes=deletes,
            suspends=tuple(change for change in changed if isinstance(change, SetSuspend)),
            patches=tuple(change for change in changed if isinstance(change, Patch)),
        )
        for key, value in self._changes(written, has_lost_children):
            self._record(key, value, now)
        for delete in deletes:
            # By this entry the next create is known to replace a child that the controller itself deleted.
            self._entries[(delete.resource, delete.name, _EXISTS)] = _Entry(False, 1, now, now)

    def not_deleted(self, creates: Iterable[Create]) -> list[Create]:
        """Returns those whose children have not been deleted lately by the controller itself."""
        return [create for create in creates if (entry := self._entries.get(_key(create))) is None or entry.value]

    def retry_now(self) -> None:
        """Lets the next writes wait for nothing, because the user has changed the job; the counts stay."""
        for entry in self._entries.values():
            entry.written_at -= entry.delay_seconds

    def reverted(self) -> list[RevertedChange]:
        """Returns the changes that were being reverted at the last call of `allowed`, by the name of the child."""
        changes = [
            RevertedChange(resource, name, fields, entry.value, entry.editor or "")
            for (resource, name, fields), entry in self._entries.items()
            if entry.is_reverted
        ]
        return sorted(changes, key=lambda change: (change.name, change.resource.kind, change.fields))

    def needs_editor(self, change: RevertedChange) -> bool:
        """Reports whether nobody has looked yet for the client that reverts this change."""
        entry = self._entries.get((change.resource, change.name, change.fields))
        return entry is not None and entry.editor is None

    def set_editor(self, change: RevertedChange, editor: str) -> None:
        if (entry := self._entries.get((change.resource, change.name, change.fields))) is not None:
            entry.editor = editor

    def seconds_until_change(self, now: float) -> float | None:
        """Returns when a write that waits is due, or a change counts as accepted; None if nothing is reverted."""
        times = [
            entry.written_at + entry.delay_seconds if entry.is_waiting else entry.seen_at + ACCEPTED_SECONDS
            for entry in self._entries.values()
            if entry.is_reverted
        ]
        return max(0.0, min(times) - now) if times else None

    def _must_wait(self, key: _Key, value: Any, now: float) -> bool:
        entry = self._entries.get(key)
        if entry is None and self._must_wait_first:
            entry = self._entries[key] = _Entry(value, _FREE_WRITES, now, now)
        if entry is None or entry.value != value:
            return False
        entry.requested_at = now
        entry.is_reverted |= entry.writes >= _FREE_WRITES
        return now < entry.written_at + entry.delay_seconds

    def _record(self, key: _Key, value: Any, now: float) -> None:
        entry = self._entries.get(key)
        if entry is None or entry.value != value:
            if key[2] == _EXISTS and entry is not None:
                # It replaces a child that the controller deleted itself.
                del self._entries[key]
                return
            self._entries[key] = _Entry(value, 1, now, now)
            return
        entry.writes += 1
        entry.is_waiting = False
        entry.written_at = entry.requested_at = now

    def _forget_old(self, now: float) -> None:
        for key, entry in list(self._entries.items()):
            if now >= entry.seen_at + max(2 * FIRST_DELAY_SECONDS, 2 * entry.delay_seconds):
                del self._entries[key]

    def _changes(self, actions: Actions, has_lost_children: bool) -> Iterator[tuple[_Key, Any]]:
        """Yields what each action changes: the key of an entry, and the value."""
        for create in actions.creates:
            if create.resource not in _UNWATCHED and (has_lost_children or _key(create) in self._entries):
                yield _key(create), True
        for suspend in actions.suspends:
            yield _key(suspend), suspend.suspend
        for delete in actions.deletes:
            if delete.resumes:
                yield _key(delete), False
        for patch in actions.patches:
            yield _key(patch), patch.body


def _key(action: Create | Delete | SetSuspend | Patch) -> _Key:
    if isinstance(action, SetSuspend | Delete):
        return JOBS, action.name, _SUSPEND
    if isinstance(action, Create):
        return action.resource, action.name, _EXISTS
    return action.resource, action.name, tuple(_paths(action.body))


def _paths(body: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields the paths of the fields that a merge patch sets, such as `spec.parallelism`."""
    for name, value in body.items():
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _without(actions: Actions, held: set[_Key]) -> Actions:
    is_resume_held = any(_key(suspend) in held and not suspend.suspend for suspend in actions.suspends) or any(
        delete.resumes and _key(delete) in held for delete in actions.deletes
    )
    return replace(
        actions,
        creates=tuple(create for create in actions.creates if _key(create) not in held),
        deletes=tuple(delete for delete in actions.deletes if not (delete.resumes and is_resume_held)),
        suspends=tuple(
            suspend
            for suspend in actions.suspends
            if _key(suspend) not in held and (suspend.suspend or not is_resume_held)
        ),
        patches=tuple(patch for patch in actions.patches if _key(patch) not in held),
    )


_MANY = 3
# The field manager of Kueue.
KUEUE = "kueue"
# The editor if the API server attributes the field to the controller, although this has written another value.
ADMISSION = "an admission webhook"
_IN_KUEUE = (
    "list the kind of its owner in integrations.externalFrameworks of Kueue's configuration, "
    "or exclude the namespace by managedJobsNamespaceSelector"
)
_REMEDY = "Stop that client, or exclude the children of this job from it"


def reverted_message(changes: list[RevertedChange]) -> str:
    """Returns a sentence for the user: which child, which field, by whom as far as it is known, and what to do."""
    if not changes:
        return ""
    first = changes[0]
    others = len({(change.resource, change.name) for change in changes}) - 1
    more = f" (and {others} more)" if others else ""
    limit = f"{MAX_DELAY_SECONDS / 60:.0f}"
    return (
        f"{_client(first)} keeps {_doing(first)} {first.resource.kind} {first.name}{more}; "
        f"the controller tries again in growing intervals of up to {limit} minutes. {_remedy(first)}"
    )


def _client(change: RevertedChange) -> str:
    if change.editor == ADMISSION:
        return ADMISSION
    return f"another client ({change.editor})" if change.editor else "another client"


def _remedy(change: RevertedChange) -> str:
    if KUEUE in change.editor:
        return f"Kueue manages this Job: {_IN_KUEUE}"
    if (change.editor, change.fields) == (ADMISSION, _SUSPEND):
        # Kueue's webhook suspends each Job at its creation (manageJobsWithoutQueueName).
        return f"If it is Kueue's: {_IN_KUEUE}"
    return _REMEDY


def _doing(change: RevertedChange) -> str:
    if change.fields == _EXISTS:
        return "deleting (or relabelling)"
    if change.fields == _SUSPEND:
        return "resuming" if change.value else "suspending"
    shown = ", ".join(change.fields[:_MANY]) + (" and more" if len(change.fields) > _MANY else "")
    return f"changing {shown} of"
