"""How numbers are written for people: one minus sign, whatever prints it. JSON and CSV hold plain numbers."""

from __future__ import annotations

MINUS = "−"


def decimal(value: float, digits: int = 1) -> str:
    """A number with so many decimals; one that rounds to nothing has no sign."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", MINUS)


def signed(value: float | None, digits: int = 1) -> str:
    """A difference with its sign; one that rounds to nothing has none."""
    if value is None:
        return "–"
    return f"{'+' if round(value, digits) > 0 else ''}{decimal(value, digits)}"


def counted(n: int, one: str, many: str = "") -> str:
    """A number with its noun: ``1 judgement``, ``2 judgements``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
