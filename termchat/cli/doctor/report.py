"""What `termchat doctor` has found: facts, what is wrong, and how to mend it; as words and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...units import number, size
from ..console import Console


@dataclass(slots=True)
class Report:
    """Facts by name, and what is wrong or worse than it could be: what, why, and how to mend it."""

    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[dict[str, str]] = field(default_factory=list)
    broken: bool = False

    def problem(self, what: str, why: str, mend: str, *, broken: bool = False) -> None:
        """Note something; broken: termchat cannot do its work like this."""
        self.problems.append({"what": what, "why": why, "mend": mend})
        self.broken = self.broken or broken

    def write(self, console: Console) -> None:
        """For people."""
        console.print_table([[f"{name}:", _shown(value)] for name, value in self.facts.items()])
        for problem in self.problems:
            console.output.write(
                f"\n{problem['what']}\n  why:  {problem['why']}\n  mend: {problem['mend']}\n"
            )
        if not self.problems:
            console.output.write("\nall is well\n")

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**self.facts, "problems": self.problems}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item or 'missing'}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        if value and isinstance(value[0], dict):
            return "; ".join(map(_card, value))
        return " ".join(value) or "none"
    return number(value) if isinstance(value, float) else "not known" if value is None else str(value)


def _card(card: dict[str, Any]) -> str:
    memory = f", {size(card['free'])} of {size(card['total'])} free" if card["total"] else ""
    place = f"{card['device']} " if card["device"] else ""
    state = "used" if card["used"] else f"not used: {card['why']}; {card['mend']}"
    return f"{place}{card['name']} {card['uuid']}{memory}, {state}"
