"""The settings of a run of `make chaos`, from environment variables."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from chaos.jobs.faultplan import FAULTS


@dataclass(frozen=True, slots=True)
class Settings:
    """See `chaos.jobs.__main__`."""

    faults: int
    jobs: int
    seed: int
    mean_seconds: float
    kinds: tuple[str, ...]
    rest_seconds: float
    patience_seconds: float

    @property
    def variables(self) -> str:
        """The variables that repeat the run, for the command line of make."""
        variables = f"CHAOS_SEED={self.seed} CHAOS_FAULTS={self.faults} CHAOS_JOBS={self.jobs}"
        kinds = f' CHAOS_KINDS="{",".join(self.kinds)}"' if self.kinds else ""
        return f"{variables} CHAOS_MEAN={self.mean_seconds:g}{kinds}"


def settings_of(environ: Mapping[str, str], table: Mapping[str, int] = FAULTS) -> Settings:
    """Returns the settings; `table` has the kinds of faults.

    Raises ValueError for an invalid number or an unknown kind of fault.
    """
    seed = environ.get("CHAOS_SEED", "")
    return Settings(
        faults=int(environ.get("CHAOS_FAULTS", "1000")),
        jobs=int(environ.get("CHAOS_JOBS", "150")),
        seed=int(seed) if seed else random.SystemRandom().randrange(10**6),
        mean_seconds=float(environ.get("CHAOS_MEAN", "0.5")),
        kinds=kinds_of(environ.get("CHAOS_KINDS", ""), table),
        rest_seconds=float(environ.get("CHAOS_REST", "5")),
        patience_seconds=float(environ.get("CHAOS_PATIENCE", "180")),
    )


def kinds_of(text: str, table: Mapping[str, int]) -> tuple[str, ...]:
    """Returns kinds of faults from a comma-separated list. Raises ValueError for one that is not in the table."""
    kinds = tuple(part.strip() for part in text.split(",") if part.strip())
    if unknown := set(kinds) - table.keys():
        raise ValueError(f"unknown kinds of faults: {', '.join(sorted(unknown))}; known are {', '.join(table)}")
    return kinds
