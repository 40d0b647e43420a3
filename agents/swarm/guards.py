"""What a rewriting of a draft may not change: numbers, names, dates, links, code, quotes, negations, and what the draft says.

Both texts are read once (`reading.read`). Each guard in `GUARDS` compares the two readings and names what was lost and what was added;
`refusal` makes one sentence of the first difference. Nothing here understands a text: what a guard cannot tell from a harmless edit it
refuses, and then the draft is sent. No model, no database.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from django.conf import settings
from django.utils.module_loading import import_string

from agents.models import Agent
from agents.swarm.reading import Reading, Word, read

NEW_WORDS = 0.15  # the largest share of content words that a rewriting may add, one word at least
NEW_IN_SENTENCE = 0.5  # from this share on a sentence is an added one
LOST_WORDS = 0.6  # a rewriting that drops more of the content words is another message


@dataclass(frozen=True, slots=True)
class Difference:
    """What a rewriting lost and what it added, in words for a reason."""

    lost: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


def _compared(draft: Counter[str], polished: Counter[str], *, echo: bool = False) -> Difference:
    """What occurs less often than in the draft, and what more often; with `echo` only what is new."""
    added = [key for key in polished if key not in draft] if echo else [*(polished - draft)]
    return Difference(tuple(draft - polished), tuple(added))


def numbers(draft: Reading, polished: Reading) -> Difference:
    """Numbers with their units, in figures or words; one may be echoed."""
    return _compared(draft.of("number"), polished.of("number"), echo=True)


def dates(draft: Reading, polished: Reading) -> Difference:
    """Days, weekdays, today and tomorrow."""
    return _compared(draft.of("date"), polished.of("date"), echo=True)


def names(draft: Reading, polished: Reading) -> Difference:
    """Capitalised words inside a sentence, and the names that were given; one that is said again may be left out."""
    lost = (word.said for word in draft.words if word.kind == "name" and word.stem not in polished.every)
    added = (word.said for word in polished.words if word.kind == "name" and word.stem not in draft.every)
    return Difference(tuple(dict.fromkeys(lost)), tuple(dict.fromkeys(added)))


def links(draft: Reading, polished: Reading) -> Difference:
    """Addresses of pages and of mail."""
    return _compared(draft.links, polished.links, echo=True)


def code(draft: Reading, polished: Reading) -> Difference:
    """Fences, spans in backticks, options of commands, paths and names of files, letter by letter."""
    return _compared(draft.code, polished.code, echo=True)


def quotes(draft: Reading, polished: Reading) -> Difference:
    """What stands in quotation marks, punctuation and contractions aside."""
    return _compared(draft.quotes, polished.quotes, echo=True)


def negations(draft: Reading, polished: Reading) -> Difference:
    """Not, no, never, without and their kin, each as often as in the draft."""
    return _compared(draft.of("negation"), polished.of("negation"))


def modality(draft: Reading, polished: Reading) -> Difference:
    """What must, should or may be: none of the three comes or goes."""
    return Difference(tuple(draft.modals - polished.modals), tuple(polished.modals - draft.modals))


def language(draft: Reading, polished: Reading) -> Difference:
    """The language, where both texts show one."""
    if draft.language and polished.language and draft.language != polished.language:
        return Difference((draft.language,), (polished.language,))
    return Difference()


def form(draft: Reading, polished: Reading) -> Difference:
    """JSON, or one fence around everything, where the draft is none."""
    added = _form(polished.text)
    return Difference((), (added,)) if added and added != _form(draft.text) else Difference()


def _form(text: str) -> str:
    bare = text.strip()
    if bare.startswith("```"):
        return "a fence around the answer"
    if bare[:1] in ("{", "["):
        try:
            json.loads(bare)
        except ValueError:
            return "JSON" if re.match(r"\{\s*[\"']\w+[\"']\s*:", bare) else ""
        except RecursionError:
            pass
        return "JSON"
    return ""


def words(draft: Reading, polished: Reading) -> Difference:
    """Content words: a small share may be new, no sentence may be, and most of the draft's have to stay."""
    ours, theirs = draft.content(), polished.content()
    known = draft.every | draft.context
    new = [word for word in theirs if word.stem not in known]
    added: list[str] = []
    if len(new) > max(1, NEW_WORDS * len(theirs)):
        added = [word.said for word in new]
    fresh, size = Counter(word.sentence for word in new), Counter(word.sentence for word in theirs)
    added += [word.said for word in new if fresh[word.sentence] >= NEW_IN_SENTENCE * size[word.sentence]]
    added += _unsupported(draft, polished, size)
    gone = [word.said for word in ours if word.stem not in polished.every]
    lost = gone if len(gone) > max(2, LOST_WORDS * len(ours)) else []
    return Difference(tuple(dict.fromkeys(lost)), tuple(dict.fromkeys(added)))


def _unsupported(draft: Reading, polished: Reading, content: Mapping[int, int]) -> list[str]:
    """Sentences without a content word, most of whose pairs of words the draft does not hold."""
    known = {(a.text, b.text) for a, b in _pairs(draft)}
    sentences: dict[int, list[Word]] = {}
    for word in polished.words:
        if not content.get(word.sentence):
            sentences.setdefault(word.sentence, []).append(word)
    return [
        " ".join(word.said for word in sentence)
        for sentence in sentences.values()
        if len(sentence) > 1 and 2 * sum((a.text, b.text) in known for a, b in pairwise(sentence)) < len(sentence) - 1
    ]


_FACTS = ("number", "date", "name", "start", "negation")
NEAR = 8  # words on each side of a fact that say what it is about
MOST_HOLDERS = (
    50  # places of the draft that are looked at for one neighbour, so that time grows no faster than the text
)

Neighbour = tuple[str, str]  # side, stem


class _Place(NamedTuple):
    """A fact with what stands beside it.

    Attributes:
        beside: The next word on each side in its clause, and the next one but one where it is a content word.
        around: These, the content words further on in the clause, and those of the sentence where a clause has hardly any.
        counted: For a number right before a content word: that one and the next two; in a rewriting one of them follows it.
        follows: The word that follows at once.
        alone: Whether nothing else stands in its clause.
    """

    word: Word
    beside: frozenset[Neighbour]
    around: frozenset[Neighbour]
    counted: frozenset[str]
    follows: str
    alone: bool


def moved(draft: Reading, polished: Reading) -> Difference:
    """Facts that now stand with what was said of another one: who ate how many, what is denied.

    The order of clauses is free. Inside a clause a fact keeps a neighbour, and its surroundings are not nearer to those of another
    fact of its kind than to its own in the draft. Two names or numbers side by side keep their order.
    """
    known = {word.text: _kind(word) for reading in (polished, draft) for word in reading.words if word.kind in _FACTS}
    firm = {
        word.text
        for reading in (polished, draft)
        for word in reading.words
        if word.kind in _FACTS and word.kind != "start"
    }
    places = list(_places(draft, known))
    same = {(place.word.text, place.around) for place in places}
    lonely = {place.word.text for place in places if place.alone}
    holders: dict[Neighbour, list[_Place]] = {}
    for place in places:
        for neighbour in place.around:
            holders.setdefault(neighbour, []).append(place)
    facts_before = {place.word.text for place in places}
    lost: list[str] = []
    for place in _places(polished, known):
        fact = place.word.text
        if fact not in facts_before or (fact, place.around) in same:
            continue
        near = {id(p): p for neighbour in place.around for p in holders.get(neighbour, ())[:MOST_HOLDERS]}.values()
        own = [p for p in near if p.word.text == fact]
        rivals = (p for p in near if p.word.text != fact and known[p.word.text] == known[fact])
        nearness = max((_alike(place, p) for p in own), default=0.0)
        stays = any(_stays(p, place) for p in own) or (place.alone and fact in lonely)
        if any(_alike(place, p) > nearness for p in rivals) or (fact in firm and not stays):
            lost.append(place.word.said)
    pairs = {(a.text, b.text) for a, b in _pairs(draft)}
    turned = ((a, b) for a, b in _pairs(polished) if (b.text, a.text) in pairs and (a.text, b.text) not in pairs)
    lost += [f"{a.said} {b.said}" for a, b in turned if known.get(a.text, a) == known.get(b.text, b)]
    return Difference(tuple(dict.fromkeys(lost)))


def _pairs(reading: Reading) -> Iterator[tuple[Word, Word]]:
    return ((a, b) for a, b in pairwise(reading.words) if a.sentence == b.sentence)


def _kind(fact: Word) -> str:
    return "name" if fact.kind == "start" else fact.kind


def _alike(a: _Place, b: _Place) -> float:
    return len(a.around & b.around) / len(a.around | b.around)


def _stays(before: _Place, after: _Place) -> bool:
    return not before.beside.isdisjoint(after.beside) and (not before.counted or after.follows in before.counted)


def _clause_of(fact: Word, near: Iterable[Word]) -> list[Word]:
    words = []
    for word in near:
        if word.clause != fact.clause:
            break
        words.append(word)
    return words


def _places(reading: Reading, facts: Collection[str]) -> Iterator[_Place]:
    row = reading.words
    for at, word in enumerate(row):
        if word.text not in facts:
            continue
        left = _clause_of(word, reversed(row[max(0, at - NEAR) : at]))
        right = _clause_of(word, row[at + 1 : at + 1 + NEAR])
        follows, counted = (right[0].stem if right else ""), frozenset[str]()
        if word.kind == "number" and right and right[0].kind in ("word", "name"):
            counted = frozenset(w.stem for w in right[:3] if w.kind in ("word", "name"))
        if alone := not left and not right:
            left, right = list(row[max(0, at - 1) : at]), list(row[at + 1 : at + 2])
        beside: set[Neighbour] = set()
        telling: set[Neighbour] = set()
        for side, near in (("left", left), ("right", right)):
            content = {(side, w.stem) for w in near if w.kind != "function"}
            telling |= content
            beside |= {(side, w.stem) for w in near[:1]} | {(side, w.stem) for w in near[1:2]} & content
        if len(telling) < 3:
            beyond = (w for w in row[max(0, at - 2 * NEAR) : at + 2 * NEAR] if w.sentence == word.sentence)
            telling |= {("beyond", w.stem) for w in beyond if w.clause != word.clause and w.kind != "function"}
        yield _Place(word, frozenset(beside), frozenset(beside | telling), counted, follows, alone)


GUARDS: Mapping[str, Callable[[Reading, Reading], Difference]] = {
    "form": form,
    "links": links,
    "code": code,
    "quotes": quotes,
    "language": language,
    "numbers": numbers,
    "dates": dates,
    "names": names,
    "negations": negations,
    "modality": modality,
    "words": words,
    "moved": moved,
}


def refusal(
    draft: str,
    polished: str,
    *,
    message: str = "",
    preferences: str = "",
    names: Collection[str] = (),
    rules: Sequence[Callable[[str], bool]] = (),
) -> str:
    """Say why a rewriting may not replace a draft; empty when it may.

    Args:
        message, preferences: What the draft answers, and what is known of the reader: their words are no new ones.
        names: Names that are names wherever they stand, as of the agents of the channel.
        rules: Of the agent, see `agent_rules`: true where a text keeps the rule. What the draft broke may stay broken.
    """
    if not polished.strip():
        return "The polish is empty."
    if polished == draft:
        return ""
    one = read(draft, names=names, context=f"{message}\n{preferences}")
    other = read(polished, names=names)
    for name, guard in GUARDS.items():
        difference = guard(one, other)
        for verb, items in (("adds", difference.added), ("loses" if name != "moved" else "moves", difference.lost)):
            if items:
                return f"The polish {verb} {_listed(items)} ({name})."
    if any(rule(draft) and not rule(polished) for rule in rules):
        return "The polish breaks a rule of the agent that the draft keeps (rules)."
    return ""


def _listed(items: Sequence[str]) -> str:
    shown = [item if len(item) <= 60 else f"{item[:59]}…" for item in items]
    return ", ".join(f"“{item}”" for item in shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")


def agent_rules(agent: Agent) -> list[Callable[[str], bool]]:
    """The rules of an agent, from the functions that `SWARM_GUARDS` names."""
    return [rule for path in settings.SWARM_GUARDS for rule in import_string(path)(agent)]
