"""The table of topics (`data/topics.yaml`): what people most often ask for, by which words, and which topics are opposites."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from agents.personas.persona import TraitLike

DATA = Path(__file__).resolve().parent / "data"
ANSWERING = "answering in "
# "calling the user Bob", "… Doctor Blum"; not "… out on mistakes"
CALLING = re.compile(r"calling the user (?!out\b|back\b|by\b|names\b)\S+(?: \S+)?")
NO_WORDS = re.compile(r"(?!)")
AnyTrait = TypeVar("AnyTrait", bound=TraitLike)


@dataclass(frozen=True, slots=True)
class Topic:
    """Something that people ask for. One outside of the table, such as a language to answer in, has only a name and a description.

    Attributes:
        words: The words that tell it, in folded text.
        opposite: The topic that a complaint of too much of this one raises.
        against: Topics that cannot hold together with it.
        is_quality: It can be a quality of other things ("a shorter route").
        is_often_work: A bare order ("give examples") is for a piece of work.
        is_of_texts: "That was too …" can speak of an answer.
    """

    name: str
    description: str
    words: re.Pattern[str] = NO_WORDS
    opposite: str = ""
    against: tuple[str, ...] = ()
    is_quality: bool = False
    is_often_work: bool = False
    is_of_texts: bool = False


@cache
def read_data(name: str) -> dict[str, Any]:
    """Read a file of the folder `data`."""
    text = (DATA / name).read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.load(text, yaml.BaseLoader)  # noqa: S506 (texts only: "no" is a word)
    return data


@cache
def topics() -> dict[str, Topic]:
    """Return the table of topics by name."""
    table = {}
    for name, row in read_data("topics.yaml").items():
        table[name] = Topic(
            name=name,
            description=row["text"],
            words=word_pattern(row["words"]),
            opposite=row.get("opposite", ""),
            against=tuple(row.get("against", ())),
            is_quality="quality" in row,
            is_often_work="often work" in row,
            is_of_texts="of texts" in row,
        )
    return table


def word_pattern(words: str, before: str = "") -> re.Pattern[str]:
    """Compile a pattern that finds any of these as a word of its own; those in a script without spaces anywhere, without `before`.

    Args:
        words: Regular expressions, separated by ``|``.
        before: A regular expression for what stands before each word.
    """
    has_no_spaces = re.compile(read_data("patterns.yaml")["scripts without spaces"])
    patterns = []
    for word in alternatives(words):
        if has_no_spaces.search(word):
            patterns.append(word)
        else:
            patterns.append(rf"(?<![^\W_]){before}(?:{word})(?![^\W_])")
    return re.compile("|".join(patterns))


def alternatives(pattern: str) -> list[str]:
    """Split a regular expression at each ``|`` outside of its parentheses and brackets."""
    parts = [""]
    depth = 0
    for char in pattern:
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        if char == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def topic_of(name: str) -> str:
    """Return the topic that a trait's name means and nothing else: of "short answers", not of "short temper"; empty where there is none.

    Common words may occur with the topic's; a name that says that something is left undone ("no emoji") has none.
    """
    folded = " ".join(name.casefold().split())
    if folded in topics():
        return folded
    data = read_data("patterns.yaml")
    if re.search(data["negated name"], folded):
        return ""
    common = {*data["common words"].split(), *data["words of manner"].split()}
    for topic in topics().values():
        other_words = set(re.findall(r"\w+", topic.words.sub(" ", folded)))
        if topic.words.search(folded) and other_words <= common:
            return topic.name
    return ""


def opposing(name: str, traits: Iterable[AnyTrait], least: float) -> AnyTrait | None:
    """Return the strongest trait, from the strength `least` up, that cannot hold together with `name`; None where there is none.

    That is one of an opposite topic, or another choice where only one can hold: another language, another name for the user.
    """
    opposites = _opposites(topic_of(name))
    choice = _exclusive_choice_of(name)
    rivals = []
    for trait in traits:
        is_other_name = trait.name.casefold() != name.casefold()
        is_other_choice = choice != "" and is_other_name and _exclusive_choice_of(trait.name) == choice
        if trait.strength >= least and (is_other_choice or topic_of(trait.name) in opposites):
            rivals.append(trait)
    return max(rivals, key=lambda trait: trait.strength, default=None)


def _exclusive_choice_of(name: str) -> str:
    """Return which choice a trait's name makes, of which only the newest holds: of a language, or of a name for the user; else empty."""
    folded = " ".join(name.casefold().split())
    if CALLING.fullmatch(folded):
        return "name"
    if not folded.startswith(ANSWERING):
        return ""
    languages = {language.casefold() for language in read_data("patterns.yaml")["languages"]}
    last_word = folded.split()[-1]  # of "American English"
    return "language" if last_word in languages else ""


@cache
def _opposites(topic: str) -> frozenset[str]:
    """Return the topics that are the opposite of this one; each pair is in one of its two rows."""
    if not topic:
        return frozenset()
    opposites = set(topics()[topic].against)
    for other in topics().values():
        if topic in other.against:
            opposites.add(other.name)
    return frozenset(opposites)
