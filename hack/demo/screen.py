"""The output of a demo: steps and their details, commands, changes, and checks. Lines are never wrapped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Check:
    """A sentence at the end of a demo, and whether it holds."""

    holds: bool
    text: str


@dataclass(frozen=True, slots=True)
class Screen:
    """Standard output, with colours on a terminal."""

    console: Console

    def step(self, text: str) -> None:
        self._line(("==> ", "bold cyan"), text)

    def detail(self, text: str) -> None:
        """Prints a detail of the current step."""
        self._line("    ", (text, "dim"))

    @contextmanager
    def command(self, text: str) -> Iterator[None]:
        """Prints a command; the block prints its output."""
        self._line(("$ ", "bold"), (text, "bold"))
        yield
        self.blank()

    def output(self, text: str) -> None:
        """Prints the output of a program unchanged."""
        self.console.out(text.rstrip("\n"), highlight=False)

    def check(self, check: Check) -> None:
        mark = ("✓ ", "green") if check.holds else ("✗ ", "bold red")
        self._line(mark, check.text)

    def checks(self, checks: Sequence[Check]) -> bool:
        """Prints all checks, and returns whether they hold."""
        for check in checks:
            self.check(check)
        return all(check.holds for check in checks)

    def title(self, text: str) -> None:
        self.blank()
        self.step(text)

    def error(self, text: str) -> None:
        self._line(("error: ", "bold red"), text)

    def blank(self) -> None:
        self.console.print()

    def _line(self, *parts: str | tuple[str, str]) -> None:
        self.console.print(Text.assemble(*parts), soft_wrap=True)


@dataclass(slots=True)
class Timeline:
    """Prints lines with the seconds since it was created."""

    screen: Screen
    began: float = field(default_factory=time.monotonic)
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def line(self, text: str) -> None:
        self.screen.output(f"{self.seconds:5.1f} s  {text}")

    def update(self, facts: Mapping[str, str]) -> bool:
        """Prints a line for each fact that differs from the last call; returns whether there was one."""
        lines, moment = changes(self.facts, facts), f"{self.seconds:5.1f} s  "
        self.facts = dict(facts)
        for text in lines:
            self.screen.output(moment + text)
        return bool(lines)


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Returns a line for each fact that was added, changed or removed; the subject is omitted if it is empty."""
    lines = [f"{about}: {text}" if about else text for about, text in now.items() if before.get(about) != text]
    return lines + [f"{about}: removed" for about in before if about not in now]
