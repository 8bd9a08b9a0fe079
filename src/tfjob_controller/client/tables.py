"""Jobs as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from tfjob_controller.client.job import Job


class Jobs(Sequence[Job]):
    """The jobs of a list, as they were when they were read. Immutable."""

    __slots__ = ("_jobs",)

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = tuple(jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> Jobs: ...
    def __getitem__(self, index: int | slice) -> Job | Jobs:
        return Jobs(self._jobs[index]) if isinstance(index, slice) else self._jobs[index]

    def __repr__(self) -> str:
        return f"Jobs({list(self._jobs)!r})"
