"""Words of those who try to take a persona over. Whoever writes them may mean it well: a person decides, never a machine."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml

from correction.behavior.lookalikes import without_unseen

DATA = Path(__file__).resolve().parent.parent / "behavior_data" / "hostile.yaml"
_LONGEST = 20_000  # characters looked at; of longer texts both ends


Signs = tuple[tuple[str, re.Pattern[str], re.Pattern[str] | None], ...]


def hostile_signs(*texts: str) -> tuple[str, ...]:
    """What in these texts reads like an attempt to take the persona over; empty when nothing does.

    The file of patterns says which languages. What it does not know it cannot see: it holds back beside the model's own judgement, not
    instead of it.
    """
    return _found("signs", texts)


def caution_signs(*texts: str) -> tuple[str, ...]:
    """What in these texts asks for more than manner: conduct towards others, secrecy, harm, advertising; empty when nothing does."""
    return _found("cautions", texts)


def gives_up(*texts: str) -> bool:
    """Whether the texts name something an agent owes those it talks to, so that less of it is nothing for a machine to decide."""
    return bool(_found("owed", texts))


def _found(group: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    seen = [(_folded(text), _seen(text)) for text in texts]
    return tuple(
        sign
        for sign, pattern, cased in _patterns(group)
        if any(pattern.search(folded) or (cased is not None and cased.search(plain)) for folded, plain in seen)
    )


@cache
def _patterns(group: str) -> Signs:
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    fill = {"{rules}": data["rules"], "{people}": data["people"]}
    found = []
    for sign, by in data[group].items():
        folded = [p for language, ps in by.items() for p in ps if language != "cased"]
        cased = "|".join(without_unseen(_filled(p, fill)) for p in by.get("cased", ()))
        pattern = re.compile("|".join(without_unseen(_filled(p, fill)) for p in folded))
        found.append((sign, pattern, re.compile(cased) if cased else None))
    return tuple(found)


def _filled(pattern: str, fill: dict[str, str]) -> str:
    for name, words in fill.items():
        pattern = pattern.replace(name, words)
    return pattern


def _folded(text: str) -> str:
    return _seen(text.casefold())


def _seen(text: str) -> str:
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}\n{text[-_LONGEST // 2 :]}"
    plain = without_unseen(text).replace("\u2019", "'").replace("\u0131", "i")
    return "\n".join(" ".join(line.split()) for line in plain.splitlines())
