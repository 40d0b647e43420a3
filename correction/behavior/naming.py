"""What a request is about and how much of it is wanted, read from its words by patterns. Where it cannot be named, the name is empty."""

from __future__ import annotations

import re
from functools import lru_cache

import yaml

from correction.behavior.features import kinds_of
from correction.behavior.lexicon import DATA, SHORTEST_ADDED, Lexicon, folded, read_stop_words, tokens
from correction.behavior.masking import CODE, QUOTE
from correction.behavior.rules import Amount

LONGEST_NAME = 60
SHORT, LONG, LENGTH = "short answers", "long answers", "answer length"
_AMOUNTS: dict[str, Amount] = {
    "stop": "stop", "never": "stop", "rarely": "rarely", "sometimes": "sometimes", "usually": "usually", "always": "always",
    "less": "less", "more": "more",
}  # fmt: skip
# Where no word for an amount is found: the kinds of words that imply one.
_BY_KIND: dict[str, Amount] = {
    "stop": "stop",
    "never": "stop",
    "less": "less",
    "too": "less",
    "more": "more",
    "comparative": "more",
}
_PRECEDENCE: tuple[Amount, ...] = ("stop", "rarely", "sometimes", "less", "more", "usually", "always")
_COMPARATIVES = {
    "shorter": "short", "briefer": "brief", "longer": "long", "nicer": "nice", "kinder": "kind", "warmer": "warm", "colder": "cold",
    "funnier": "funny", "stricter": "strict", "gentler": "gentle", "softer": "soft", "blunter": "blunt", "simpler": "simple",
    "calmer": "calm", "friendlier": "friendly", "sillier": "silly", "harsher": "harsh", "meaner": "mean", "clearer": "clear",
    "slower": "slow", "faster": "fast", "tougher": "tough", "sweeter": "sweet", "ruder": "rude", "quieter": "quiet", "wittier": "witty",
}  # fmt: skip
_CALL = re.compile(r"\b(?:call|address|calling|addressing) me (?:as |by )?(?P<what>[^.,!?;\n]{1,40})")
_LANGUAGE = re.compile(
    r"\b(?:in|to|into|speak|only|use|continue in|talk)\s+"
    r"(?P<what>(?:simple |plain |british |american )?(?:english|german|french|spanish|italian|"
    r"portuguese|dutch|polish|swedish|norwegian|danish|finnish|turkish|japanese|chinese|mandarin|korean|russian|ukrainian|czech|"
    r"hindi|arabic|indonesian|vietnamese|greek|hebrew|latin|welsh|irish))\b"
)
_LIKE = re.compile(r"\b(?P<what>(?:like|as) an? [^.,!?;\n]{2,40}|in the (?:style|voice|manner) of [^.,!?;\n]{2,40})")
_BE = re.compile(
    r"\b(?:be|being|sound|sounding|act|become|are|seem|get)\s+"
    r"(?:(?:a bit|a little|a lot|way|far|so|too|much|more|less|always|a)\s+)*(?P<what>[\w'-]{3,24})\b"
)
_OBJECT = re.compile(
    r"\b(?:(?:stop|quit|avoid|cease|drop|lose|ditch|cut|skip|no more|enough with|enough of|without|refrain from|lay off|tone down|"
    r"easy on|"
    r"do not|don't|dont|never|not)\s+(?:out\s+|with\s+|it with\s+|on\s+|from\s+)?"
    r"|(?:use|using|add|adding|include|throw in|put in|give me|show|try|make|ask|asking|say|saying|tell me|fewer|less|more|too many|"
    r"so many|"
    r"too much|so much|start|keep|mention|write)\s+)(?P<what>[^.,!?;:\n]{2,80})"
)
_LEADING = re.compile(
    r"^(?:(?:to|with|the|your|those|these|all|any|some|so|a|an|of|it|me|my|using|use|saying|say|doing|making|make|adding|writing|sending|"
    r"being|giving|me with|too|many|much|more|less|fewer|please|ever|always|that|this|bit|little|lot|few|out|in)\s+)+"
)
_TRAILING = re.compile(
    r"\s+(?:please|pls|thanks|thank you|with me|to me|at me|for me|when you .*|if you .*|in your .*|all the time|every time|so much|"
    r"so often|any ?more|already|sometimes|always|from now on|once in a while|now and then|every now and then|a bit|again|ok(?:ay)?|"
    r"in here|in this chat|"
    r"because .*|since .*|so that .*|and .*|but .*|as .*|too|maybe|lol)$"
)
_EMPTY = frozenset(
    {
        "",
        "it",
        "that",
        "this",
        "them",
        "these",
        "those",
        "so",
        "doing that",
        "doing this",
        "things",
        "thing",
        "one",
        "do",
        "you",
        "me",
    }
)


def amount_of(text: str) -> Amount:
    """How much of the behaviour is wanted, by the words for it; ``unspecified`` without any."""
    words = tokens(folded(text))
    found: set[str] = set()
    place = 0
    while place < len(words):
        kind, length = _amounts().kind_at(words, place)
        found.add(kind)
        place += length
    said = {_BY_KIND.get(kind, "") for kind in kinds_of(words)}
    return next((amount for amount in _PRECEDENCE if amount in found or amount in said), "unspecified")


def behavior_name(sentence: str, known: str = "") -> str:
    """A short name of the behaviour that a sentence asks for; empty where none can be made out.

    Args:
        sentence: Folded, with quotations masked.
        known: The sentence with its quotations, for names that are quoted: ``stop saying “actually”``.
    """
    text = " ".join(sentence.split())
    if found := _CALL.search(text):
        what = _clean(found["what"], known)
        return f"calling the user {what}" if what else ""
    if (found := _LANGUAGE.search(text)) and not text.endswith("?"):
        return f"answering in {found['what'].title()}"
    if found := _LIKE.search(text):
        return _cut(f"speaking {_TRAILING.sub('', found['what'])}")
    for name, topic in _topics():
        if topic.search(text):
            return SHORT if name in (LONG, LENGTH) and _too_much(text) else name
    object_of = _OBJECT.search(text)
    if (found := _BE.search(text)) and (object_of is None or found.start() <= object_of.start() + 12):
        quality = _COMPARATIVES.get(found["what"], found["what"])
        if quality not in _EMPTY:
            return _cut(f"being {quality}")
    return _clean(object_of["what"], known) if object_of else ""


def _too_much(text: str) -> bool:
    """Whether it is a complaint about too much, or asks for less."""
    return not {"too", "less", "stop", "keeps"}.isdisjoint(kinds_of(tokens(text)))


def _clean(what: str, known: str) -> str:
    if QUOTE in what or CODE in what:
        quoted = re.search(r"[\"“„«「']([^\"”“»」'\n]{1,30})[\"”“»」']", known)
        return _cut(f"saying {quoted[1].strip()}") if quoted else ""
    what = _LEADING.sub("", what.strip())
    while (shorter := _TRAILING.sub("", what)) != what:
        what = shorter
    return "" if what in _EMPTY else _cut(what)


def _cut(name: str) -> str:
    plain = " ".join(re.sub(r"[^\w\s'’&+./-]", " ", name).split())
    return plain if len(plain) <= LONGEST_NAME else plain[:LONGEST_NAME].rsplit(" ", 1)[0]


@lru_cache(maxsize=1)
def _topics() -> tuple[tuple[str, re.Pattern[str]], ...]:
    read = yaml.safe_load((DATA / "topics.yaml").read_text(encoding="utf-8"))
    return tuple((name, re.compile("|".join(alternatives))) for name, alternatives in read.items())


@lru_cache(maxsize=1)
def _amounts() -> Lexicon:
    """The words for how much, of all languages that `stop_words.yaml` has. English ones have precedence."""
    found = Lexicon({})
    for language, amounts in read_stop_words().items():
        for amount, entries in amounts.items():
            for entry in entries if amount in _AMOUNTS else ():
                if language == "en" or len(entry) >= SHORTEST_ADDED or not entry.isascii():
                    found.add(_AMOUNTS[amount], entry)
    return found
