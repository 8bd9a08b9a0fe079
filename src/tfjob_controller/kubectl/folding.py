"""Folds lines of a timeline that say the same into one line, for people. Pure.

Events of children with one reason, and a message that differs in names and numbers only, are one line with their sum:
a kubelet that pulls a wrong image for three replicas writes five events for each. Events about the job itself are
folded only if they are equal, because their numbers matter. What several children say of themselves in one second is
one line too. Ends of containers and log lines are never folded.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

import msgspec

from tfjob_controller.kubectl.holdings import shortened
from tfjob_controller.kubectl.timeline import CONDITION, EVENT, OBJECT, Entry

# A name of a child, which has at least two hyphens, or a number with what belongs to it, such as 1.5s or 10.0.0.1:5000.
_VARIABLE = re.compile(r"[\w.]+(?:-[\w.]+){2,}|\d[\w.:]*")
_CHILDREN = ("pod", "job")


def folded(entries: Sequence[Entry], *, keep_reconciles_apart: bool = False) -> list[Entry]:
    """In the order of the first of each. `keep_reconciles_apart` where lines are shown with their reconcile id."""
    groups: dict[Hashable, list[Entry]] = {}
    for index, entry in enumerate(entries):
        key = _key(entry)
        apart = entry.reconcile_id if keep_reconciles_apart else ""
        groups.setdefault((key, apart) if key is not None else index, []).append(entry)
    return [_one(group) for group in groups.values()]


def _key(entry: Entry) -> Hashable | None:
    """What lines of one group have in common; None for a line that is never folded."""
    word, _, name = entry.source.partition("/")
    if entry.kind == EVENT:
        if word not in _CHILDREN:
            return EVENT, entry.source, entry.text, entry.is_warning
        return EVENT, word, _VARIABLE.sub("#", entry.text.replace(name, "#")), entry.is_warning
    if entry.kind in (OBJECT, CONDITION) and word in _CHILDREN:
        return entry.kind, word, entry.text, entry.is_warning, entry.time[:19]
    return None


def _one(group: Sequence[Entry]) -> Entry:
    """The time of the first, the words of the last."""
    if len(group) == 1:
        return group[0]
    first, last = group[0], max(group, key=lambda each: each.last_time or each.time)
    sources = dict.fromkeys(each.source for each in group)
    word = first.source.partition("/")[0]
    is_event = first.kind == EVENT
    return msgspec.structs.replace(
        last,
        time=first.time,
        source=first.source if len(sources) == 1 else f"{len(sources)} {word}s",
        replica=_replicas(group),
        count=sum(each.count for each in group) if is_event else 1,
        last_time=(last.last_time or last.time) if is_event else "",
        reconcile_id=first.reconcile_id,
    )


def _replicas(group: Sequence[Entry]) -> str:
    named = {each.replica for each in group if each.replica}
    indexed = [each.rpartition("-") for each in named if each.rpartition("-")[2].isdecimal()]
    ordered = [f"{role}-{index}" for role, _, index in sorted(indexed, key=lambda each: (each[0], int(each[2])))]
    return shortened(ordered)
