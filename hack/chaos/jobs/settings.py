"""The settings of a run of `make chaos`, from environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chaos import command
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
        values = {"SEED": self.seed, "FAULTS": self.faults, "JOBS": self.jobs, "MEAN": self.mean_seconds}
        return command.variables({f"CHAOS_{name}": value for name, value in values.items()}, self.kinds)


def settings_of(environ: Mapping[str, str], table: Mapping[str, int] = FAULTS) -> Settings:
    """Returns the settings; `table` has the kinds of faults.

    Raises ValueError for an invalid number or an unknown kind of fault.
    """
    return Settings(
        faults=int(environ.get("CHAOS_FAULTS", "1000")),
        jobs=int(environ.get("CHAOS_JOBS", "150")),
        seed=command.seed(environ, "CHAOS_SEED"),
        mean_seconds=command.number(environ, "CHAOS_MEAN", 0.5),
        kinds=command.kinds(environ, table),
        rest_seconds=command.number(environ, "CHAOS_REST", 5),
        patience_seconds=command.number(environ, "CHAOS_PATIENCE", 180),
    )
