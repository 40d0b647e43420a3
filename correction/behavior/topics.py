"""The table of topics (`data/topics.yaml`): what people most often ask for, by which words, and which topics are opposites."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from agents.personas.persona import TraitLike

DATA = Path(__file__).resolve().parent / "data"
ANSWERING = "answering in "
# "calling the user Bob", "… Doctor Blum"; not "… out on mistakes"
CALLING = re.compile(r"calling the user (?!out\b|back\b|by\b|names\b)\S+(?: \S+)?")
Like = TypeVar("Like", bound=TraitLike)


@cache
def read_data(name: str) -> dict[str, Any]:
    """Read a file of the folder `data`."""
    text = (DATA / name).read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.load(text, yaml.BaseLoader)  # noqa: S506 (texts only: "no" is a word)
    return data


@cache
def topics() -> dict[str, tuple[re.Pattern[str], dict[str, Any]]]:
    """Name to its words and its row of `topics.yaml`."""
    return {name: (any_of(row["words"]), row) for name, row in read_data("topics.yaml").items()}


def is_marked(name: str, mark: str) -> bool:
    return mark in topics()[name][1] if name in topics() else False


def any_of(words: str, before: str = "") -> re.Pattern[str]:
    """Any of these as a word of its own; in scripts without spaces, anywhere."""
    spaced = rf"(?<![^\W_]){before}(?:%s)(?![^\W_])"
    unspaced = re.compile(read_data("forms.yaml")["unspaced"])
    return re.compile("|".join(one if unspaced.search(one) else spaced % one for one in alternatives(words)))


def alternatives(pattern: str) -> list[str]:
    """The alternatives of a pattern outside of its parentheses and brackets."""
    found, depth = [""], 0
    for char in pattern:
        depth += (char in "([") - (char in ")]")
        if char == "|" and not depth:
            found.append("")
        else:
            found[-1] += char
    return [one.strip() for one in found if one.strip()]


def topic_of(name: str) -> str:
    """Return the topic that a trait's name means and nothing else: of "short answers", not of "short temper"; empty where there is none."""
    folded = " ".join(name.casefold().split())
    if folded in topics():
        return folded
    forms = read_data("forms.yaml")
    if re.search(forms["negated name"], folded):
        return ""
    common = {*forms["common words"].split(), *forms["words of manner"].split()}
    for topic, (words, _) in topics().items():
        if words.search(folded) and set(re.findall(r"\w+", words.sub(" ", folded))) <= common:
            return topic
    return ""


def opposing(name: str, traits: Iterable[Like], least: float) -> Like | None:
    """Return the strongest trait, from this strength up, that is the opposite of what `name` means; None where there is none."""
    topic = topic_of(name)
    choice = _choice_of(name)
    rivals = []
    for trait in traits:
        is_other = bool(choice) and _choice_of(trait.name) == choice and trait.name.casefold() != name.casefold()
        if trait.strength >= least and (is_other or topic_of(trait.name) in _opposites(topic)):
            rivals.append(trait)
    return max(rivals, key=lambda trait: trait.strength, default=None)


def _choice_of(name: str) -> str:
    """Return which choice a trait's name makes, of which only the newest holds: of a language, or of a name for the user; else empty."""
    folded = " ".join(name.casefold().split())
    if folded.startswith(ANSWERING):
        languages = {language.casefold() for language in read_data("forms.yaml")["languages"]}
        return "language" if folded.split()[-1] in languages else ""  # the last word, for "American English"
    return "name" if CALLING.fullmatch(folded) else ""


@cache
def _opposites(topic: str) -> frozenset[str]:
    """The topics that are the opposite of this one; each pair stands in one of its two rows."""
    if not topic:
        return frozenset()
    named = {other for other, (_, row) in topics().items() if topic in row.get("against", ())}
    return frozenset(named | set(topics()[topic][1].get("against", ())))
