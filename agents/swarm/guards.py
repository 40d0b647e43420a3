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
from itertools import groupby
from operator import attrgetter

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
    before: dict[tuple[str, ...], tuple[Word, ...]] = {tuple(sorted(_texts(row))): row for row in ours}
    lost: list[str] = []
    for row in theirs:
        other = before.get(tuple(sorted(_texts(row))), row)
        places = [at for at, (one, two) in enumerate(zip(row, other, strict=True)) if one.text != two.text]
        if len(places) == 2 and sorted(map(_texts, _clauses(row))) != sorted(map(_texts, _clauses(other))):
            lost += [row[at].said for at in places]
    return Difference(tuple(lost))


def _clauses(row: Iterable[Word]) -> list[tuple[Word, ...]]:
    return [tuple(part) for _, part in groupby(row, attrgetter("clause"))]


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
    """Sentences and clauses: none is added, whatever its words are.

    A word is in excess where the polish says it more often than the draft; a clause with mostly such words was added.
    """
    ours = Counter(word.stem for word in draft.content())
    excess = Counter(word.stem for word in polished.content()) - ours
    added = [*(polished.alone - draft.alone)]
    for part in _clauses(word for row in _changed(polished, draft) for word in row):
        content = [word for word in part if word.kind in CONTENT]
        strange = [word for word in content if word.stem in excess and word.stem not in draft.context]
        if len(strange) > NEW_IN_SENTENCE * len(content) and not _echoes(part, draft):
            added.append(" ".join(word.said for word in part))
    return Difference((), tuple(dict.fromkeys(added)))


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


_FACTS = ("number", "date", "name", "negation")
NEAR = 1  # telling words on each side of a fact that say what it is about


def moved(draft: Reading, polished: Reading) -> Difference:
    """Facts that now stand with what was said of another one: who ate how many, what is denied.

    The facts of a clause have to stand in this order in one sentence of the draft, and each beside a word that it stands beside there.
    """
    stated = [word for text in (draft, polished) for word in text.words]
    facts = {word.text for word in stated if word.kind in _FACTS} - {
        word.text for word in stated if word.kind == "word"
    }
    beside: dict[str, set[str]] = {}
    for part in _clauses(draft.words):
        for fact, near in _near(part, facts):
            beside.setdefault(fact, set()).update(near)
    stated_facts = {tuple(word.text for word in row if word.text in facts) for row in draft.sentences}
    lost: list[str] = []
    for part in _clauses(word for row in _changed(polished, draft) for word in row):
        held = tuple(word.text for word in part if word.text in beside)
        if held and not any(_in_order(held, row) for row in stated_facts):
            lost += held
        lost += [
            fact for fact, near in _near(part, facts) if near and beside.get(fact) and beside[fact].isdisjoint(near)
        ]
    return Difference(tuple(dict.fromkeys(lost)))


def _near(part: Sequence[Word], facts: Collection[str]) -> Iterator[tuple[str, set[str]]]:
    """Each fact of a clause with the stems of the telling words around it."""
    telling = [word for word in part if word.kind != "function" or word.text in facts]
    for at, word in enumerate(telling):
        if word.text in facts:
            yield word.text, {one.stem for one in (*telling[max(0, at - NEAR) : at], *telling[at + 1 : at + 1 + NEAR])}


def _in_order(some: Iterable[str], of: Iterable[str]) -> bool:
    rest = iter(of)
    return all(one in rest for one in some)


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
