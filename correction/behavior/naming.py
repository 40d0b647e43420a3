"""Find what a clause asks for, a topic of the table, a language or a name, and write it as a trait's name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from correction.behavior.languages import CODE, QUOTE, folded, pattern_named, spoken_languages
from correction.behavior.topics import Topic, read_data, topics

LONGEST_NAME = 60  # characters
LENGTH_TOPICS = ("short, concise answers", "long answers", "detailed answers")


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic with the position of its words in a clause."""

    topic: Topic
    start: int
    end: int


def find_topic(clause: str) -> FoundTopic | None:
    """Return what a clause is about: a name for the user, a language, else the topic of the table that stands first; None for nothing.

    A topic of the table is not looked for in reported speech ("he said …").
    """
    if named := _find_name_for_user(clause):
        return named
    for language, pattern in spoken_languages().items():
        match = pattern.search(clause)
        # "Plain English" is a manner, no language to answer in.
        if match and not pattern_named("plain language").search(clause[: match.end()]):
            answering = Topic(f"answering in {language}", f"Answers in {language}.")
            return FoundTopic(answering, match.start(), match.end())
    if speech := pattern_named("reported speech").search(clause):
        clause = clause[: speech.start()]
    candidates = []
    for topic in topics().values():
        if match := topic.words.search(clause):
            candidates.append(FoundTopic(topic, match.start(), match.end()))
    # A comparative of length ("kürzer als zwei Sätze") decides against a topic that stands before it.
    comparatives = [
        candidate
        for candidate in candidates
        if candidate.topic.name in LENGTH_TOPICS[:2]  # short and long answers
        and pattern_named("comparative of length").search(clause[candidate.start : candidate.end])
    ]
    return min(comparatives or candidates, key=lambda candidate: candidate.start, default=None)


def _find_name_for_user(clause: str) -> FoundTopic | None:
    """Return as a topic the name by which the user wants to be called, or not: "call me Robin"; None where there is none."""
    match = pattern_named("calling the user").search(clause)
    if match is None:
        return None
    group = "what" if match["what"] else "other"
    start, end = match.span(group)
    if negation := pattern_named("negation before a name").match(match[group]):
        start += negation.end()
    name = short_name(clause[start:end])
    if not name:
        return None
    return FoundTopic(Topic(f"calling the user {name}", f"Calls the user {name}."), start, end)


def from_the_agents_side(words: str) -> str:
    """Return the user's words as a trait of the agent says them: "the user's weight" for "my weight"."""
    words = re.sub(r"\b(?:my|our)\b", "the user's", words)
    return re.sub(r"\b(?:me|us|myself)\b", "the user", words)


def short_name(words: str) -> str:
    """Return a name of at most 60 characters for what is asked for; ``saying`` and the mark `QUOTE` where the words hold a quotation.

    Empty where the words name nothing, or hold code.
    """
    name = pattern_named("before a name").sub("", words.strip())
    while (shorter := pattern_named("after a name").sub("", name)) != name:
        name = shorter
    name = " ".join(re.sub(rf"[^\w\s'&+./{QUOTE}-]", " ", name).split())
    if pattern_named("words that name nothing").fullmatch(name) or CODE in name:
        return ""
    if QUOTE in name:
        return f"saying {QUOTE}"
    return name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME].rsplit(" ", 1)[0]


def name_as_written(name: str, text: str) -> str:
    """Return a trait's name with the capitals that the message has: ``calling the user Robin``, and the first quotation for its mark.

    The name as it is where the message does not have its words. Empty where the name has a mark and the message no quotation.
    """
    if QUOTE in name:
        quotation = pattern_named("first quotation").search(text)
        quoted = " ".join(re.sub(r"[^\w\s'’&+./-]", " ", quotation[1]).split()) if quotation else ""
        return name.replace(QUOTE, quoted) if quoted else ""
    words = re.sub(r"^(?:calling the user|saying|speaking like|being) ", "", name)
    start = text.lower().find(words)
    is_same_length = len(text.lower()) == len(text)  # of some letters the lower case is longer
    if start < 0 or not is_same_length:
        return name
    return name.removesuffix(words) + text[start : start + len(words)]


def stems(text: str, common: frozenset[str] | None = None) -> set[str]:
    """Return the telling words of a name, case-folded, of three letters or more, those of more than four without their endings.

    Args:
        common: Words that tell nothing; default those of `patterns.yaml`.
    """
    if common is None:
        common = frozenset(read_data("patterns.yaml")["common words"].split())
    words = set(re.findall(r"[^\W\d_]{3,}", folded(text))) - common
    return {pattern_named("word ending").sub("", word) if len(word) > 4 else word for word in words}
