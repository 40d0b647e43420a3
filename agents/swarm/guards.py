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
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from django.conf import settings
from django.utils.module_loading import import_string

from agents.models import Agent
from agents.swarm.reading import A_ONE, CONTENT, OPPOSING, OPPOSITES, Reading, Word, foreign_words, read

NEW_WORDS = 0.15  # the largest share of content words that a rewriting may add, one word at least
NEW_IN_SENTENCE = 0.5  # a sentence with a larger share of them is an added one
LOST_WORDS = 0.6  # a rewriting that drops more of the content words is another message


@dataclass(frozen=True, slots=True)
class Difference:
    """What a rewriting lost and what it added, in words for a reason."""

    lost: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


def _compared(draft: Counter[str], polished: Counter[str], *, echo: bool = False) -> Difference:
    """What occurs less often than in the draft, and what more often; with `echo` only what is new."""
    added = [key for key in polished if key not in draft and key != A_ONE] if echo else [*(polished - draft)]
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


def limits(draft: Reading, polished: Reading) -> Difference:
    """At least, only, some, always, probably and their kin: none comes or goes."""
    return Difference(tuple(draft.limits - polished.limits), tuple(polished.limits - draft.limits))


def opposites(draft: Reading, polished: Reading) -> Difference:
    """A word in the place of its opposite: open for closed, unsafe for safe."""
    gone = draft.every - polished.every
    return Difference((), tuple(sorted(stem for stem in polished.every - draft.every if gone and _opposes(stem, gone))))


def _opposes(stem: str, others: frozenset[str]) -> bool:
    if not others.isdisjoint(OPPOSITES.get(stem, ())):
        return True
    return any(prefix + stem in others or stem.removeprefix(prefix) in others for prefix in OPPOSING)


def questions(draft: Reading, polished: Reading) -> Difference:
    """Questions: none comes, and none becomes a statement; one may be left out."""
    ours, theirs = draft.text.count("?"), polished.text.count("?")
    lost = ours > theirs and len(polished.sentences) >= len(draft.sentences)
    return Difference(("a question",) if lost else (), ("a question",) if theirs > ours else ())


def swapped(draft: Reading, polished: Reading) -> Difference:
    """Two words that changed places in a sentence, as in "dogs chase cats"; the order of clauses is free."""
    ours, theirs = (
        [tuple(word for word in row if word.kind != "negation") for row in rows]  # "is it not" is "isn't it"
        for rows in (_changed(draft, polished), _changed(polished, draft))
    )
    lost: list[str] = []
    before: dict[tuple[str, ...], list[tuple[Word, ...]]] = {}
    for row in ours:
        before.setdefault(tuple(sorted(map(_plain, row))), []).append(row)
    for row in theirs:
        for other in before.get(tuple(sorted(map(_plain, row))), ()):
            places = [at for at, (one, two) in enumerate(zip(row, other, strict=True)) if _plain(one) != _plain(two)]
            if len(places) == 2 and _clauses(row) != _clauses(other):
                lost += [row[at].said for at in places]
    return Difference(tuple(lost))


_CASES = {"me": "i", "him": "he", "us": "we", "them": "they"}


def _plain(word: Word) -> str:
    return _CASES.get(word.text, word.text)


def _clauses(row: Sequence[Word]) -> list[tuple[str, ...]]:
    return sorted(tuple(map(_plain, part)) for _, part in groupby(row, attrgetter("clause")))


def language(draft: Reading, polished: Reading) -> Difference:
    """The language, where both texts show one, and words of another one."""
    if draft.language and polished.language and draft.language != polished.language:
        return Difference((draft.language,), (polished.language,))
    return Difference((), foreign_words(polished, draft) if draft.language else ())


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
    new = [word for word in theirs if word.stem not in draft.every | draft.context]
    fresh, size = Counter(word.sentence for word in new), Counter(word.sentence for word in theirs)
    if len(new) <= max(1, NEW_WORDS * len(theirs)):
        new = [word for word in new if fresh[word.sentence] > NEW_IN_SENTENCE * size[word.sentence]]
    gone = [word.said for word in ours if word.stem not in polished.every]
    lost = gone if len(gone) > max(2, LOST_WORDS * len(ours)) else []
    return Difference(tuple(dict.fromkeys(lost)), tuple(dict.fromkeys(word.said for word in new)))


def sentences(draft: Reading, polished: Reading) -> Difference:
    """Sentences and clauses: none is added, whatever its words are. Those that stand in both texts are set aside."""
    return Difference((), tuple(dict.fromkeys([*_added_sentences(draft, polished), *(polished.alone - draft.alone)])))


def _added_sentences(draft: Reading, polished: Reading) -> Iterator[str]:
    """Sentences that go back to none of the draft's, or a clause of which does not, or what was put before or after one.

    A word in excess stands more often in the changed sentences of the polish than in those of the draft.
    """
    before, after = _changed(draft, polished), _changed(polished, draft)
    excess = Counter(word.stem for row in after for word in row) - Counter(word.stem for row in before for word in row)
    pairs = {pair for row in before for pair in pairwise(_texts(row))}
    sizes: dict[int, set[tuple[str, ...]]] = {}
    for row in before:
        sizes.setdefault(len(row), set()).add(_texts(row))

    def supported(part: Sequence[Word]) -> bool:
        if any(word.kind in CONTENT for word in part):
            return any(word.kind in CONTENT and word.stem not in excess for word in part)
        return 2 * sum(pair in pairs for pair in pairwise(_texts(part))) >= len(part) - 1

    for row in after:
        parts = [tuple(part) for _, part in groupby(row, lambda word: word.clause)]
        rest = [word for part in parts if not _echoes(part, draft) for word in part]
        parts += [row[size:] for size, rows in sizes.items() if _texts(row[:size]) in rows]
        parts += [row[:-size] for size, rows in sizes.items() if _texts(row[-size:]) in rows]
        strange = [word for word in rest if word.stem in excess and word.stem not in draft.context]
        content = [sum(word.kind in CONTENT for word in each) for each in (strange, rest)]
        most = len(strange) > NEW_IN_SENTENCE * len(rest) or content[0] > NEW_IN_SENTENCE * content[1]
        if rest and (most or not before or not all(supported(part) or _echoes(part, draft) for part in parts)):
            yield " ".join(word.said for word in row)


def _changed(reading: Reading, other: Reading) -> list[tuple[Word, ...]]:
    """The sentences of a text that the other one does not hold."""
    theirs, changed = Counter(map(_texts, other.sentences)), []
    for row in reading.sentences:
        theirs[_texts(row)] -= 1
        if theirs[_texts(row)] < 0:
            changed.append(row)
    return changed


def _echoes(row: Iterable[Word], draft: Reading) -> bool:
    """Whether a clause repeats a number with words that stand beside it in the draft, in their order, and says nothing else."""
    said = [word for word in row if word.kind != "function"]
    rows = (iter([word.text for word in one]) for one in draft.sentences)
    return any(word.kind == "number" for word in said) and any(all(w.text in one for w in said) for one in rows)


def _texts(row: Iterable[Word]) -> tuple[str, ...]:
    return tuple([word.text for word in row])


_FACTS = ("number", "date", "name", "start", "negation")
NEAR = 8  # words on each side of a fact that say what it is about
MOST_PLACES = 50  # of the draft that are looked at for one neighbour, so that time grows no faster than the text

Held = tuple[tuple[int, str], ...]  # where in a sentence or clause which facts stand


class _Place(NamedTuple):
    """A fact with the stems of what it is about: the words of its clause, or of its sentence where the clause has no others.

    Attributes:
        counted: For a number those of the next three words that it may count.
    """

    fact: str
    around: frozenset[str]
    counted: frozenset[str]

    def like(self, other: _Place) -> float:
        return len(self.around & other.around) / len(self.around | other.around)


def moved(draft: Reading, polished: Reading) -> Difference:
    """Facts that now stand with what was said of another one: who ate how many, what is denied.

    The order of clauses is free, that of facts in a clause is not. A sentence or clause that says the same but for its facts holds the
    same facts in the same places. In one that is written otherwise a fact is about its own words more than about those of another.
    """
    both = [word for one, two in ((draft, polished), (polished, draft)) for word in one.words if word.stem in two.every]
    small = {word.text for word in both if word.kind == "word"}
    facts = {word.text: word.kind for word in both if word.kind in _FACTS and word.text not in small}
    facts |= {word.text: word.kind for word in both if word.kind == "name"}
    lost: list[str] = []
    for unit in ("sentence", "clause"):
        frames = _frames(draft, facts, unit)
        for frame, each in _frames(polished, facts, unit).items():
            rest = iter(frames.get(frame, each))
            lost += [fact for held in dict.fromkeys(each) if held not in rest for _, fact in held]
    before, after = _in_turn(draft, facts), _in_turn(polished, facts)
    lost += [f"{one} {other}" for one, other in after if (other, one) in before and (one, other) not in before]
    changed = _changed(polished, draft)
    near: dict[str, list[_Place]] = {}
    for place in dict.fromkeys(place for row in draft.sentences if changed for place in _places(row, facts)):
        for stem in place.around:
            near.setdefault(stem, []).append(place)
    for place in (place for row in changed for place in _places(row, facts) if facts[place.fact] != "start"):
        beside = {one for stem in place.around for one in near.get(stem, ())[:MOST_PLACES]}
        own = [one for one in beside if one.fact == place.fact]
        rivals = (one for one in beside if one.fact != place.fact and facts[one.fact] == facts[place.fact])
        nearness = max(map(place.like, own), default=0.0)
        counts = not own or not place.counted or any(place.counted & one.counted or not one.counted for one in own)
        if not counts or any(place.like(one) > nearness for one in rivals):
            lost.append(place.fact)
    return Difference(tuple(dict.fromkeys(lost)))


def _frames(reading: Reading, facts: Collection[str], unit: str) -> dict[tuple[str, ...], list[Held]]:
    """The words of each sentence or clause but for its facts, and in turn which facts stand where in those."""
    frames: dict[tuple[str, ...], list[Held]] = {}
    for _, row in groupby(reading.words, attrgetter(unit)):
        rest, held, content, says = [], [], 0, unit == "sentence"
        for at, word in enumerate(row):
            if word.text in facts:
                held.append((content if word.kind == "negation" else at, word.text))  # "is it not" is "isn't it"
            else:
                rest.append(word.text)
                says |= word.kind in CONTENT
            content += word.kind in CONTENT
        if says:
            frames.setdefault(tuple(rest), []).append(tuple(held))
    return frames


def _in_turn(reading: Reading, facts: Mapping[str, str]) -> dict[tuple[str, str], None]:
    """Facts of one kind that follow each other in a clause."""
    held = [word for word in reading.words if word.text in facts]
    same = ((a, b) for a, b in pairwise(held) if a.clause == b.clause and facts[a.text] == facts[b.text])
    return {(a.text, b.text): None for a, b in same}


def _places(row: Sequence[Word], facts: Collection[str]) -> Iterator[_Place]:
    for at, word in enumerate(row):
        if word.text in facts:
            near = [*row[max(0, at - NEAR) : at], *row[at + 1 : at + 1 + NEAR]]
            telling = [one for one in near if one.kind != "function"]
            clause = [one.stem for one in telling if one.clause == word.clause]
            after = [one for one in row[at + 1 : at + 4] if word.kind == "number" and one.clause == word.clause]
            counted = frozenset(one.stem for one in after if one.kind in CONTENT)
            yield _Place(word.text, frozenset(clause or [one.stem for one in telling]), counted)


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
    "limits": limits,
    "opposites": opposites,
    "questions": questions,
    "swapped": swapped,
    "words": words,
    "sentences": sentences,
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
        for verb, items in (
            ("adds", difference.added),
            ("moves" if name in ("moved", "swapped") else "loses", difference.lost),
        ):
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
