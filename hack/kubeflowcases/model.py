"""A case: a TrainJob with its runtime, and what happens to both, step by step.

    Case("name", "upstream's test", "The promise.", job, runtime, (step, …))

The TrainJob is created first. A step changes something or waits until facts hold. All steps are values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Object = dict[str, Any]
Values = Mapping[str, Any]

_TOKEN = re.compile(r"\[([^\]]*)\]|#(\w+)|([^.\[\]#]+)")


@dataclass(frozen=True, slots=True)
class Contains:
    """An expected value: any text with this part."""

    part: str


@dataclass(frozen=True, slots=True)
class Has:
    """An object of the job exists, and these of its values are as expected.

    `name` is what follows the job's name in the name of the object; for a Job, the name of its replicated job. The
    keys of `values` are paths, see `look_up`; None stands for a value that is not there or is empty.
    """

    kind: str
    name: str
    values: Values


@dataclass(frozen=True, slots=True)
class HasNone:
    """The job has no object of a kind, or none whose name ends like this."""

    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Fails:
    """The controller refuses the job: its condition Failed has this reason and these words, and it has no Job."""

    words: str
    reason: str = "JobsBuildFailed"


@dataclass(frozen=True, slots=True)
class NotStored:
    """The API server refuses an object of the case when it is created: its `kind`, and words of the error."""

    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Change:
    """The user changes fields of the job's spec. With `refused`, the API server answers with an error of such words."""

    spec: Object
    refused: str = ""


@dataclass(frozen=True, slots=True)
class ChangeRuntime:
    """The author of the runtime changes fields of its spec."""

    spec: Object


@dataclass(frozen=True, slots=True)
class DeleteRuntime:
    """The author of the runtime deletes it."""


@dataclass(frozen=True, slots=True)
class End:
    """The programs of a replicated job's pods end with this exit code, as soon as so many pods run."""

    name: str = "node"
    exit_code: int = 0
    pods: int = 1


@dataclass(frozen=True, slots=True)
class Another:
    """Another job is created, so that the controller has had its time for this one.

    The step ends when the other job's pod runs, or, with `condition`, when the other job has this condition.
    """

    spec: Object = field(default_factory=dict)
    condition: str = ""


Step = Has | HasNone | Fails | NotStored | Change | ChangeRuntime | DeleteRuntime | End | Another


@dataclass(frozen=True, slots=True)
class Case:
    """One promise of upstream, and what holds here.

    `name` is also the name of the TrainJob unless `job_name` is given. `job` has the fields of the job's spec without
    `runtimeRef`, `runtime` those of its runtime's spec. With `runtime_name` no runtime is created for the case, which
    then uses one that upstream publishes, or one that does not exist. `differs` says what upstream does, what happens
    here, and why; it is empty if the promise holds. With `on_server` a case needs an API server whatever its steps are.
    """

    name: str
    source: str
    promise: str
    job: Object
    runtime: Object
    steps: tuple[Step, ...]
    differs: str = ""
    runtime_name: str = ""
    runtime_kind: str = "TrainingRuntime"
    job_name: str = ""
    on_server: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for a case without steps, and for a text that is no sentence."""
        if not self.steps or any(not text.endswith(".") for text in (self.promise, self.differs or ".")):
            raise ValueError(f"{self.name}: it has steps, and its texts are sentences")

    def but(self, differs: str) -> Case:
        """Returns the case whose promise does not hold here, with the reason."""
        return replace(self, differs=differs)

    @property
    def is_pure(self) -> bool:
        """Reports whether its steps are about the plan of the job alone: facts about Jobs, and refusals."""
        of_plan = (isinstance(step, Fails) or (isinstance(step, Has) and step.kind == "Job") for step in self.steps)
        return all(of_plan) and bool(self.runtime) and not self.on_server

    @property
    def passes(self) -> bool:
        return not self.differs

    @property
    def is_refused_late(self) -> bool:
        """Reports whether the controller refuses what upstream's admission webhook refuses earlier."""
        return any(isinstance(each, Fails) for each in self.steps)

    @property
    def is_of_crds(self) -> bool:
        """Reports whether the promise is kept by upstream's CRDs alone: a refusal or a default of the API server."""
        refused = (isinstance(each, NotStored) or (isinstance(each, Change) and each.refused) for each in self.steps)
        return any(refused) or all(_reads_defaults(each) for each in self.steps)


def _reads_defaults(step: Step) -> bool:
    if not isinstance(step, Has) or step.kind not in ("TrainJob", "TrainingRuntime"):
        return False
    return all(path.startswith("spec.") for path in step.values)


def look_up(given: object, path: str) -> Any:
    """Returns a value of an object by its path; None if there is none. These are paths:

    - `spec.parallelism`: fields
    - `metadata.labels[a.b/c]`: a key with dots
    - `spec.containers[node].env[A].value`: an entry of a list by its name, key, type or mountPath
    - `spec.tolerations[0]`: an entry by its index
    - `spec.containers[node].env#name`: the sorted values of one field of all entries
    """
    found = given
    for key, collected, plain in _TOKEN.findall(path):
        if collected:
            found = sorted(str(each.get(collected)) for each in found or ()) if isinstance(found, list | None) else None
        elif isinstance(found, list):
            found = next(_entries(found, key or plain), None)
        else:
            found = found.get(key or plain) if isinstance(found, Mapping) else None
    return found


def _entries(items: list[Any], key: str) -> Iterator[Any]:
    if key.isdigit():
        yield from items[int(key) : int(key) + 1]
        return
    for each in items:
        names = (each.get(key_name) for key_name in ("name", "key", "type")) if isinstance(each, Mapping) else ()
        if key in names or (isinstance(each, Mapping) and each.get("mountPath") == key):
            yield each


def mismatches(given: object, values: Values) -> list[str]:
    """Returns a line for each value that is not as expected."""
    found = ((path, wanted, look_up(given, path)) for path, wanted in values.items())
    return [f"{path} is {value!r}, not {wanted!r}" for path, wanted, value in found if not _matches(value, wanted)]


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Contains):
        return wanted.part in str(value)
    return bool(value == wanted) or (wanted is None and value in ([], {}))
