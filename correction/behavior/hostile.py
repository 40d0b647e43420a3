"""Words of those who try to take a persona over. Whoever writes them may mean it well: a person decides, never a machine."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path

import yaml

DATA = Path(__file__).resolve().parent.parent / "behavior_data" / "hostile.yaml"
_LONGEST = 20_000  # characters looked at; of longer texts both ends


def hostile_signs(*texts: str) -> tuple[str, ...]:
    """What in these texts reads like an attempt to take the persona over; empty when nothing does.

    The file of patterns says which languages. What it does not know it cannot see: it holds back beside the model's own judgement, not
    instead of it.
    """
    folded = [_folded(text) for text in texts]
    return tuple(sign for sign, pattern in _patterns() if any(pattern.search(text) for text in folded))


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return tuple(
        (sign, re.compile("|".join(_plain(p.replace("{rules}", data["rules"])) for ps in by.values() for p in ps)))
        for sign, by in data["signs"].items()
    )


def _folded(text: str) -> str:
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}\n{text[-_LONGEST // 2 :]}"
    plain = _plain(text.casefold()).replace("\u2019", "'").replace("\u0131", "i")
    return "\n".join(" ".join(line.split()) for line in plain.splitlines())


def _plain(text: str) -> str:
    """Without accents and invisible characters, and with one form of each letter."""
    decomposed = unicodedata.normalize("NFKD", text)
    kept = "".join(char for char in decomposed if unicodedata.category(char) not in ("Mn", "Cf"))
    return unicodedata.normalize("NFKC", kept)
