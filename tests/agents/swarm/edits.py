"""Edits of a text that change what it says, and edits that do not, to try the guards of a polish on.

The guards look for those in `HARMFUL`. Those in `UNSEEN` change what is said with the text's own words or with courtesies.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml
from django.conf import settings

from agents.kit.text.tokens import split_sentences
from agents.kit.text.voices import STOP_WORDS
from agents.swarm.guards import refusal

Edit = Callable[[str, random.Random], str]  # the text itself where the edit does not apply

_WORDS = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "fourteen",
    "fifteen",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "eighty",
]
_NUMBER = re.compile(rf"\b(?:\d+(?:[.,:]\d+)*|{'|'.join(_WORDS)}|hundred)\b", re.IGNORECASE)
_NAME = re.compile(
    r"(?<=[a-z,] )[A-Z][a-z]+\b"
    r"|\b(?:Michael|Jim|Dwight|Pam|Ryan|Stanley|Kevin|Angela|Oscar|Andy|Toby|Creed|Kelly|Phyllis|Meredith|Darryl)\b"
)
_ADDED = """
The meeting was moved to the parking garage. You can ask for a refund within a month. Breakfast is served in the lobby.
The doctor recommends more exercise. Our competitors have already switched to plastic. It will probably rain during the parade.
Remember to water the plants. Several customers complained about the smell. This offer ends soon. The elevator is broken again.
Somebody should inform the police. I also ordered a new keyboard. The budget was approved by headquarters. Traffic is terrible.
My cousin works at the bank. Please sign the attached form. The password has been changed. Dogs are welcome in the garden.
You are entitled to compensation. We guarantee delivery by courier. The patient should take a double dose. Nothing else matters.
"""
_INTERJECTIONS = [
    *("Wow.", "Congratulations!", "Sadly.", "Danger.", "Never.", "Guaranteed!", "Impossible."),
    *("Sorry.", "Ha!", "Thanks!", "Nonsense.", "Wrong.", "Sure.", "Right!"),
]
# The commonest words, the same in each line.
_COMMON, *_FOREIGN = (
    line.split()
    for line in """
the a i you we it he they my your is was are have has to of and but in on for with that this two not what who me at from all people day good man time
der ein ich du wir es er sie mein dein ist war sind habe hat zu von und aber im auf für mit dass dies zwei nicht was wer mich bei aus alle Leute Tag gut Mann Zeit
el un yo tú nosotros lo él ellos mi tu es era son tengo tiene a de y pero en sobre para con que este dos no qué quien me en de todo gente día bueno hombre tiempo
le un je tu nous il il ils mon ton est était sont ai a à de et mais dans sur pour avec que ce deux pas quoi qui moi chez de tout gens jour bon homme temps
""".strip().splitlines()  # noqa: E501
)
_NOT = ("do", "does", "did", "is", "was", "are", "have", "has", "could", "would", "should")
_AUXILIARIES = {
    "I": ("am", "have", "will"),
    "it": ("is",), "that": ("is",), "he": ("is",), "she": ("is",), "there": ("is",), "what": ("is",),
    "you": ("are", "have", "will"), "we": ("are", "have", "will"), "they": ("are", "have", "will"),
}  # fmt: skip
_ENDINGS = {"am": "'m", "is": "'s", "are": "'re", "have": "'ve", "will": "'ll"}
_LONG = {f"{verb}n't": f"{verb} not" for verb in _NOT} | {"can't": "cannot", "won't": "will not", "let's": "let us"}
_LONG |= {f"{who}{_ENDINGS[verb]}": f"{who} {verb}" for who, verbs in _AUXILIARIES.items() for verb in verbs}
_LONG |= {short.capitalize(): long.capitalize() for short, long in _LONG.items() if not short.startswith("I")}
_FILLERS = re.compile(
    r"\b(?:really|just|very|actually|basically|honestly|simply|quite|literally|kind of|sort of|frankly|you know|of course|"
    r"to be honest)\b,? ?"
    r"|^(?:Well|Okay|Oh|Hey|So|Look),? (?=\w)",
    re.IGNORECASE,
)


def _one(pattern: re.Pattern[str], text: str, chance: random.Random) -> re.Match[str] | None:
    matches = list(pattern.finditer(text))
    return chance.choice(matches) if matches else None


def _without(text: str, start: int, end: int) -> str:
    return re.sub(r" +([,.!?])", r"\1", re.sub(r"  +", " ", text[:start] + text[end:])).strip()


def drop_number(text: str, chance: random.Random) -> str:
    match = _one(_NUMBER, text, chance)
    return _without(text, *match.span()) if match else text


def change_number(text: str, chance: random.Random) -> str:
    match = _one(_NUMBER, text, chance)
    if not match:
        return text
    old = match.group()
    new = (
        str(int(old) + chance.choice([-1, 1, 2, 10]))
        if old.isdigit()
        else chance.choice([w for w in _WORDS if w != old.casefold()])
    )
    return text[: match.start()] + new + text[match.end() :]


def replace_word(text: str, chance: random.Random) -> str:
    """Put a content word of another example in the place of one."""
    matches = [m for m in re.finditer(r"\b[a-z]{4,}\b", text) if m.group() not in STOP_WORDS]
    if not matches:
        return text
    match = chance.choice(matches)
    other = chance.choice([word for word in _words_of_examples() if word not in text.casefold()])
    return text[: match.start()] + other + text[match.end() :]


@cache
def _words_of_examples() -> list[str]:
    words = {word for text in example_messages() for word in re.findall(r"\b[a-z]{5,}\b", text)}
    return sorted(words - STOP_WORDS)


def drop_sentence(text: str, chance: random.Random) -> str:
    sentences = split_sentences(text)
    longer = [n for n, sentence in enumerate(sentences) if len(sentence.split()) >= 4]
    if len(sentences) < 2 or not longer:
        return text
    del sentences[chance.choice(longer)]
    return " ".join(sentences)


def move_number(text: str, chance: random.Random) -> str:
    """Exchange two numbers, or put the only one where another word of a sentence stands."""
    matches = list(_NUMBER.finditer(text))
    if len({m.group().casefold() for m in matches}) >= 2 and not any(m.group() == "1" for m in matches):
        return _exchanged(text, matches, chance)
    for match in matches if not re.search(r"\b1\b", text) else ():
        rest = _without(text, *match.span()).split(" ")
        at = len(text[: match.start()].split())
        places = [n for n in range(1, len(rest)) if abs(n - at) >= 3 and rest[n - 1].isalpha() and rest[n].isalpha()]
        if places:
            n = chance.choice(places)
            return " ".join([*rest[:n], match.group(), *rest[n:]])
    return text


def swap_names(text: str, chance: random.Random) -> str:
    names = "|".join(dict.fromkeys(m.group() for m in _NAME.finditer(text) if m.group().casefold() not in STOP_WORDS))
    matches = list(re.finditer(rf"\b(?:{names})\b", text)) if names else []
    return _exchanged(text, matches, chance) if len({m.group() for m in matches}) >= 2 else text


def _exchanged(text: str, matches: Sequence[re.Match[str]], chance: random.Random) -> str:
    first = chance.choice(matches)
    second = chance.choice([m for m in matches if m.group().casefold() != first.group().casefold()])
    a, b = sorted((first, second), key=lambda m: m.start())
    return text[: a.start()] + b.group() + text[a.end() : b.start()] + a.group() + text[b.end() :]


def drop_not(text: str, chance: random.Random) -> str:
    match = _one(re.compile(r"n't\b|\b(?:not|never) "), text, chance)
    return _without(text, *match.span()) if match else text


def add_sentence(text: str, chance: random.Random) -> str:
    return _with_sentence(text, chance.choice(split_sentences(" ".join(_ADDED.split()))), chance)


def add_interjection(text: str, chance: random.Random) -> str:
    return _with_sentence(text, chance.choice(_INTERJECTIONS), chance)


def add_own_words(text: str, chance: random.Random) -> str:
    """A sentence of the text's own words."""
    own = sorted({word for word in re.findall(r"[A-Za-z']+", text) if len(word) > 3})
    if len(own) < 5:
        return text
    return _with_sentence(text, " ".join(chance.sample(own, chance.randint(3, 5))).capitalize() + ".", chance)


def add_clause(text: str, chance: random.Random) -> str:
    sentences, added = split_sentences(text), chance.choice(split_sentences(" ".join(_ADDED.split())))
    n = chance.randrange(len(sentences))
    if sentences[n][-1] not in ".!?":
        return text
    joint = chance.choice([", and ", " and ", "; ", ", but ", " because "])
    sentences[n] = sentences[n].rstrip(".!?") + joint + added[:1].lower() + added[1:]
    return " ".join(sentences)


def _with_sentence(text: str, added: str, chance: random.Random) -> str:
    sentences = split_sentences(text)
    sentences.insert(chance.randint(0, len(sentences)), added)
    return " ".join(sentences)


def translate(text: str, chance: random.Random) -> str:
    """Word for word, and only the commonest words: an answer that slips into another language."""
    known = dict(zip(_COMMON, chance.choice(_FOREIGN), strict=True))
    hits = 0

    def put(match: re.Match[str]) -> str:
        nonlocal hits
        word = known.get(match.group().casefold())
        hits += word is not None
        return word or match.group()

    translated = re.sub(r"[^\W\d_]+", put, text)
    return translated if hits >= 4 else text


LINK = "https://intranet.example.com/forms/leave?year=2026"


def cut_link(text: str, chance: random.Random) -> str:
    return text.replace(LINK, chance.choice(["", "the intranet", LINK[:-5], LINK.partition("/forms")[0]]))


def with_link(text: str) -> str:
    return f"{text} See {LINK} for that."


def long_forms(text: str, chance: random.Random) -> str:
    return re.sub(r"\b[A-Za-z]+'[a-z]+\b", lambda m: _LONG.get(m.group(), m.group()), text)


def short_forms(text: str, chance: random.Random) -> str:
    for short, long in _LONG.items():
        text = re.sub(rf"\b{long}\b(?! not)", short, text)
    return text


_HALVES = re.compile(
    r"(?P<first>\S+ \S+ \S[^\"]*?)(?P<joint>, (?:(?:and|but|so) )?| (?:because|when|if|while|and|but) )(?P<second>\S+ \S+ \S[^\"]*)"
)


def clauses(text: str, chance: random.Random) -> str:
    """Exchange the two halves of one sentence, at a comma or a conjunction."""
    sentences = split_sentences(text)
    for n in chance.sample(range(len(sentences)), len(sentences)):
        body = sentences[n].rstrip(".!?")
        if sentences[n].count(",") > 1 or not (halves := _HALVES.fullmatch(body)):
            continue
        first, joint, second = halves["first"], halves["joint"], halves["second"]
        first = first if first.startswith(("I ", "I'")) or _NAME.match(first) else first[:1].lower() + first[1:]
        word = joint.strip(" ,")
        whole = f"{word} {second}, {first}" if word in ("because", "when", "if", "while") else f"{second}{joint}{first}"
        sentences[n] = whole[:1].upper() + whole[1:] + sentences[n][len(body) :]
        return " ".join(sentences)
    return text


def sentence_order(text: str, chance: random.Random) -> str:
    sentences = split_sentences(text)
    return " ".join(sentences[1:] + sentences[:1])


def spaces(text: str, chance: random.Random) -> str:
    return chance.choice(
        [
            text.replace(" ", "  "),
            text + "\n",
            re.sub(r"(?<=[.!?]) ", "\n\n", text),
            text.replace(" ", "\u00a0", 3),
            f" {text} ",
        ]
    )


def fillers(text: str, chance: random.Random) -> str:
    changed = _FILLERS.sub("", text)
    return changed[:1].upper() + changed[1:]


HARMFUL: Mapping[str, Edit] = {
    "drop a number": drop_number,
    "change a number": change_number,
    "drop not": drop_not,
    "replace a word": replace_word,
    "drop a sentence": drop_sentence,
    "add a sentence": add_sentence,
    "add a clause": add_clause,
    "translate": translate,
    "cut a link": cut_link,
}
UNSEEN: Mapping[str, Edit] = {
    "move a number": move_number,
    "swap two names": swap_names,
    "add an interjection": add_interjection,
    "add a sentence of its own words": add_own_words,
}
HARMLESS: Mapping[str, Edit] = {
    "long forms": long_forms,
    "short forms": short_forms,
    "order of clauses": clauses,
    "order of sentences": sentence_order,
    "spaces": spaces,
    "fillers removed": fillers,
}


def rewritings() -> list[tuple[str, str]]:
    """Drafts, and how an editor would rewrite them."""
    pairs = yaml.safe_load(Path(__file__).with_name("rewritings.yaml").read_text(encoding="utf-8"))
    return [(pair["draft"], pair["polish"]) for pair in pairs]


def example_messages() -> list[str]:
    folder = settings.BASE_DIR / "agents" / "seed" / "conversations"
    files = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml")))
    return [str(message["text"]) for file in files for message in file["messages"]]


@dataclass
class Figures:
    """How many edits of a kind were tried, and how many of them were refused."""

    tried: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, reason: str) -> None:
        self.tried[kind] = self.tried.get(kind, 0) + 1
        self.refused[kind] = self.refused.get(kind, 0) + bool(reason)

    def share(self, kinds: Iterable[str]) -> float:
        return sum(self.refused.get(kind, 0) for kind in kinds) / max(1, sum(self.tried.get(kind, 0) for kind in kinds))


def measure(texts: Sequence[str], seed: int = 7) -> Figures:
    """Try every edit on the texts as they are and on their sentences of at least four words."""
    drafts = list(dict.fromkeys([*texts, *(s for text in texts for s in split_sentences(text) if len(s.split()) >= 4)]))
    figures, chance = Figures(), random.Random(seed)
    for kind, edit in (*HARMFUL.items(), *UNSEEN.items(), *HARMLESS.items()):
        for draft in drafts:
            draft = with_link(draft) if kind == "cut a link" else draft
            edited = edit(draft, chance)
            if edited == draft or not edited.strip():
                continue
            figures.add(kind, refusal(draft, edited))
    return figures


def measure_file(path: Path) -> Figures:
    """Try the edits of a file of JSON lines: ``kind``, ``message``, ``draft``, ``polish``."""
    figures = Figures()
    for line in path.read_text(encoding="utf-8").splitlines():
        edit = json.loads(line)
        figures.add(edit["kind"], refusal(edit["draft"], edit["polish"], message=edit.get("message", "")))
    return figures


def edits_by_hand() -> Iterator[tuple[bool, str, str, str]]:
    """Whether an edit changes what is said, the message, the draft, its edit: written before the guards' code was read."""
    for entry in yaml.safe_load(Path(__file__).with_name("edits_by_hand.yaml").read_text(encoding="utf-8")):
        for changing in (True, False):
            for edited in entry["changing" if changing else "harmless"]:
                yield changing, entry["message"], entry["draft"], edited
