"""What an edit of a text changed: numbers, names, dates, links, code, quotes, negations, content words, sentences with content.

Both texts are read once (`reading.read`). Each function in `GUARDS` compares the two readings and names what was lost and what was added.
Nothing here understands a text, and no model is asked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from agents.kit.text.reading import A_ONE, COURTESY, TELLING, Reading, foreign_words
from agents.kit.text.tokens import split_sentences


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


def questions(draft: Reading, polished: Reading) -> Difference:
    """Questions: none comes, and none becomes a statement; one may be left out."""
    ours, theirs = draft.text.count("?"), polished.text.count("?")
    lost = ours > theirs and len(split_sentences(polished.text)) >= len(split_sentences(draft.text))
    return Difference(("a question",) if lost else (), ("a question",) if theirs > ours else ())


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
    """Content words that are in neither the draft nor what it answers, in any of their forms; and short ones such as "off" that went."""
    known = draft.every | draft.context
    lost = (word.said for word in draft.content() if word.text in TELLING and word.stem not in polished.every)
    added = (word.said for word in polished.content() if word.stem not in known)
    return Difference(tuple(dict.fromkeys(lost)), tuple(dict.fromkeys(added)))


def sentences(draft: Reading, polished: Reading) -> Difference:
    """Sentences with content: of the words that only this sentence of the draft has, half must stay.

    A sentence that repeats others may go, and so may one of courtesy alone, such as "I hope this helps!"
    """
    rows = [list(row) for _, row in groupby(draft.content(), attrgetter("sentence"))]
    sentences_with = Counter(stem for row in rows for stem in {word.stem for word in row})
    lost = []
    for row in rows:
        if all(word.text in COURTESY for word in row):
            continue
        own = {word.stem for word in row if sentences_with[word.stem] == 1}
        if 2 * len(own & polished.every) < len(own):
            lost.append(" ".join(word.said for word in row))
    return Difference(tuple(lost))


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
    "questions": questions,
    "words": words,
    "sentences": sentences,
}
