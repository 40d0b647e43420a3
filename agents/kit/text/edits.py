"""Compare two texts for what an edit changed: numbers, names, dates, links, code, quotes, negations, content words, whole sentences.

Both texts are parsed once (`reading.parse_text`). Each function in `GUARDS` compares the two and names what was lost and what was
added. Nothing here understands a text, and no model is asked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agents.kit.text.reading import COURTESY, PRONOUN_ONE, TELLING, ParsedText, Word, foreign_words
from agents.kit.text.tokens import split_sentences


@dataclass(frozen=True, slots=True)
class Difference:
    """Words of what an edit lost and of what it added, to be quoted in a reason."""

    lost: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


def _compare_allowing_repetition(draft: Counter[str], polished: Counter[str]) -> Difference:
    """Compare counts of which the edit may repeat what the draft has: lost is what occurs less often, added what the draft has not at all.

    A "one" that counts nothing ("the red one") may be new.
    """
    added = [key for key in polished if key not in draft and key != PRONOUN_ONE]
    return Difference(tuple(draft - polished), tuple(added))


def numbers(draft: ParsedText, polished: ParsedText) -> Difference:
    """Compare numbers with their units, in figures or words; one may be repeated."""
    return _compare_allowing_repetition(draft.count_of_kind("number"), polished.count_of_kind("number"))


def dates(draft: ParsedText, polished: ParsedText) -> Difference:
    """Compare days, weekdays, "today" and "tomorrow"; one may be repeated."""
    return _compare_allowing_repetition(draft.count_of_kind("date"), polished.count_of_kind("date"))


def names(draft: ParsedText, polished: ParsedText) -> Difference:
    """Compare capitalised words inside a sentence, and the names that were given; a repetition may be left out."""
    return Difference(
        lost=_names_missing_in(polished, draft),
        added=_names_missing_in(draft, polished),
    )


def _names_missing_in(other: ParsedText, text: ParsedText) -> tuple[str, ...]:
    """Return the names of `text` that the other text has in no form, each once."""
    missing = [word.written for word in text.words if word.kind == "name" and word.stem not in other.every]
    return tuple(dict.fromkeys(missing))


def links(draft: ParsedText, polished: ParsedText) -> Difference:
    """Compare addresses of pages and of mail."""
    return _compare_allowing_repetition(draft.links, polished.links)


def code(draft: ParsedText, polished: ParsedText) -> Difference:
    """Compare fences, spans in backticks, options of commands, paths and names of files, letter by letter."""
    return _compare_allowing_repetition(draft.code, polished.code)


def quotes(draft: ParsedText, polished: ParsedText) -> Difference:
    """Compare quotes, punctuation and contractions aside."""
    return _compare_allowing_repetition(draft.quotes, polished.quotes)


def negations(draft: ParsedText, polished: ParsedText) -> Difference:
    """Compare how often each of not, no, never, without and the like occurs."""
    before = draft.count_of_kind("negation")
    after = polished.count_of_kind("negation")
    return Difference(tuple(before - after), tuple(after - before))


def modality(draft: ParsedText, polished: ParsedText) -> Difference:
    """Compare whether something must, should or may be: none of the three comes or goes."""
    return Difference(tuple(draft.modals - polished.modals), tuple(polished.modals - draft.modals))


def limits(draft: ParsedText, polished: ParsedText) -> Difference:
    """Compare "at least", "only", "some", "always", "probably" and the like: none comes or goes."""
    return Difference(tuple(draft.limits - polished.limits), tuple(polished.limits - draft.limits))


def questions(draft: ParsedText, polished: ParsedText) -> Difference:
    """Compare questions: none comes, and none becomes a statement; one may be left out."""
    before = draft.text.count("?")
    after = polished.text.count("?")
    if after > before:
        return Difference(added=("a question",))
    became_a_statement = len(split_sentences(polished.text)) >= len(split_sentences(draft.text))
    if after < before and became_a_statement:
        return Difference(lost=("a question",))
    return Difference()


def language(draft: ParsedText, polished: ParsedText) -> Difference:
    """Compare the languages, where both texts show one; where they do not differ, name words taken from another (see `foreign_words`).

    Nothing is compared where the draft shows no language.
    """
    if not draft.language:
        return Difference()
    if polished.language and draft.language != polished.language:
        return Difference((draft.language,), (polished.language,))
    return Difference(added=foreign_words(polished, draft))


def form(draft: ParsedText, polished: ParsedText) -> Difference:
    """Name JSON, or a fence around the answer, as added where the draft has another form. A form that went is not named."""
    added = _form(polished.text)
    if not added or added == _form(draft.text):
        return Difference()
    return Difference(added=(added,))


def _form(text: str) -> str:
    """Return what a text is instead of sentences: JSON, also when it was cut off, or a fence, as it begins; empty where it is neither."""
    bare = text.strip()
    if bare.startswith("```"):
        return "a fence around the answer"
    if bare[:1] not in ("{", "["):
        return ""
    try:
        json.loads(bare)
    except ValueError:
        begins_with_a_key = re.match(r"\{\s*[\"']\w+[\"']\s*:", bare)
        return "JSON" if begins_with_a_key else ""
    except RecursionError:
        return "JSON"  # nested too deeply for prose
    return "JSON"


def words(draft: ParsedText, polished: ParsedText) -> Difference:
    """Name content words that are new in every form, also to the draft's context (what it answers), and telling ones that went.

    Telling words are those of `TELLING`, such as "off". Other content words may go: `sentences` looks at those.
    """
    old_stems = draft.every | draft.context
    added = [word.written for word in polished.content_words() if word.stem not in old_stems]
    lost = []
    for word in draft.content_words():
        if word.text in TELLING and word.stem not in polished.every:
            lost.append(word.written)
    return Difference(tuple(dict.fromkeys(lost)), tuple(dict.fromkeys(added)))


def sentences(draft: ParsedText, polished: ParsedText) -> Difference:
    """Name sentences with content that went: of the words that only this sentence of the draft has, half must stay.

    A sentence that repeats others may go, and so may one of courtesy alone, such as "I hope this helps!"
    """
    content: dict[int, list[Word]] = {}
    for word in draft.content_words():
        content.setdefault(word.sentence, []).append(word)
    sentences_with: Counter[str] = Counter()
    for sentence in content.values():
        sentences_with.update({word.stem for word in sentence})
    lost = []
    for sentence in content.values():
        if all(word.text in COURTESY for word in sentence):
            continue
        # A sentence all of whose words stand in others, too, has none here, so that nothing of it is lost.
        only_here = {word.stem for word in sentence if sentences_with[word.stem] == 1}
        kept = only_here & polished.every
        if 2 * len(kept) < len(only_here):
            lost.append(" ".join(word.written for word in sentence))
    return Difference(lost=tuple(lost))


GUARDS: Mapping[str, Callable[[ParsedText, ParsedText], Difference]] = {
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
