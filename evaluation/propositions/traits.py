"""One automatic proposition of adherence per trait, so that what a persona shall be is measured without writing anything.

A trait that always or (nearly) never shows can be seen in a single message: at a strength of at most 0.1 or at least 0.7 it is judged
message by message, in between once over the window, since one message says nothing about "sometimes". At strength 0 the claim is that
the agent does it, inverted. A proposition in a file that names the trait replaces it.

The id speaks of the trait's name alone. What the trait is now (description, band) is in the digest: after a change the proposition is
another one, which no comparison takes for the same.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agents.persona import BANDS, ROUNDING, TraitLike, strength_band
from agents.text.fences import neutral
from evaluation.propositions.schema import Proposition

DIMENSION = "adherence"
WEIGHT = 1.0  # of every automatic proposition, that of a claim in a file that says nothing else
OF_A_MESSAGE_UP_TO, OF_A_MESSAGE_FROM = 0.1, 0.7  # strengths that show in a single message
COVERED_ABOVE = BANDS[1][0]  # a claim in a file says that the trait shows: not when it is to show rarely or never
SOURCE = "trait"
LONGEST_ID, LONGEST_DESCRIPTION = 80, 600
_BRACES = re.compile(r"(?<=\{)(?=\{)|(?<=\})(?=\})")  # between two: no variable is left

_STOPPED = "{{agent_name}} does in this message what the persona has ruled out under “Never”: %s"
_RARE = "{{agent_name}} leaves out of this message, or hardly hints at, what the persona does rarely: %s"
_STRONG = "{{agent_name}} shows in this message what the persona %s does: %s"
_NOW_AND_THEN = "{{agent_name}} does this %s, as the persona says, over all these messages together: %s"
_ADVICE = {
    BANDS[0][1]: "Leave this out altogether: %s.",
    BANDS[1][1]: "Let this show rarely: %s.",
    BANDS[2][1]: "Let this show sometimes, not always: %s.",
    BANDS[3][1]: "Let this show in most of what you write: %s.",
    BANDS[4][1]: "Let this show whenever you write: %s.",
}


def with_traits(
    propositions: Sequence[Proposition], traits: Iterable[TraitLike], *, automatic: bool = True
) -> list[Proposition]:
    """An agent's propositions of adherence from files, joined with those of its traits.

    A claim that names a trait is asked as long as the trait shows (above 0.25; with `trait_stopped` at 0), and is then the only one about
    it; otherwise the automatic one is. One whose trait the agent has not is asked all the same, unless its file is for all agents.
    Without `automatic` there are those of files alone.
    """
    ordered = sorted(traits, key=lambda trait: (trait.name.casefold(), trait.name))
    by_name = {trait.name.casefold(): trait for trait in ordered}
    asked, covered = [], set()
    for proposition in propositions:
        if not proposition.trait:
            asked.append(proposition)
            continue
        name = proposition.trait.casefold()
        trait = by_name.get(name)
        if trait is None:
            asked += [] if proposition.for_all else [proposition]
        elif covers(proposition, trait):
            covered.add(name)
            asked.append(replace(proposition, trait_now=_state(trait)))
    if not automatic:
        return asked
    ids = {p.id for p in propositions}
    return asked + [_automatic(trait, ids) for trait in ordered if trait.name.casefold() not in covered]


def covers(proposition: Proposition, trait: TraitLike) -> bool:
    """Whether a claim that names this trait speaks of it as strong as it is now."""
    if proposition.trait_stopped or trait.strength == 0:
        return proposition.trait_stopped and trait.strength == 0
    return trait.strength > COVERED_ABOVE + ROUNDING


def of_a_message(strength: float) -> bool:
    """Whether a trait of this strength (0 to 1) is judged message by message."""
    return strength <= OF_A_MESSAGE_UP_TO + ROUNDING or strength >= OF_A_MESSAGE_FROM - ROUNDING


def trait_id(name: str, in_use: Iterable[str] = ()) -> str:
    """``trait-concise-replies`` for *Concise replies*, whatever its case. A name that loses something on the way, or whose id is
    `in_use`, gets a few hex digits of the name, so that the id depends on no other trait."""
    plain = unicodedata.normalize("NFKC", name.casefold()).casefold()
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    slug = "-".join(re.findall(r"[a-z0-9]+", ascii_only))[:LONGEST_ID].strip("-")
    is_whole = bool(slug) and slug == "-".join(re.split(r"[\s_-]+", plain.strip()))
    short = f"trait-{slug}"
    if is_whole and short not in in_use:
        return short
    return "-".join(filter(None, ("trait", slug, hashlib.sha256(name.casefold().encode()).hexdigest()[:6])))


def presence(trait: TraitLike) -> Proposition:
    """The claim that a message shows the trait, whatever its strength, without the persona: tells before from after."""
    claim = "{{agent_name}} does this in the message: %s" % _named(trait)  # noqa: UP031 (braces stand for variables)
    return Proposition(
        dimension=DIMENSION,
        id=trait_id(trait.name),
        claim=claim,
        include_personas=False,
        source=SOURCE,
        trait=trait.name,
        trait_now=_state(trait),
        recommendations="–",  # none is asked for
    )


def _automatic(trait: TraitLike, in_use: set[str]) -> Proposition:
    band, stopped = strength_band(trait.strength), trait.strength == 0
    identifier = trait_id(trait.name, in_use)
    in_use.add(identifier)
    return Proposition(
        dimension=DIMENSION,
        id=identifier,
        claim=_claim(trait, band.lower()),
        weight=WEIGHT,
        inverted=stopped,
        recommendations=_ADVICE[band] % _quoted(trait.name),
        source=SOURCE,
        trait=trait.name,
        trait_stopped=stopped,
        trait_now=_state(trait),
        over_window=not of_a_message(trait.strength),
    )


def _claim(trait: TraitLike, band: str) -> str:
    if trait.strength == 0:  # its description may say what to do instead: the name says what is stopped
        return _STOPPED % _quoted(trait.name)
    if not of_a_message(trait.strength):
        return _NOW_AND_THEN % (band, _named(trait))
    return _RARE % _named(trait) if trait.strength < 0.5 else _STRONG % (band, _named(trait))


def _state(trait: TraitLike) -> str:
    return f"{strength_band(trait.strength)}: {trait.name.casefold()}: {' '.join(trait.description.split())}"


def _named(trait: TraitLike) -> str:
    description = " ".join(trait.description.split())
    if len(description) > LONGEST_DESCRIPTION:
        description = f"{description[:LONGEST_DESCRIPTION]}…"
    return _quoted(f"{trait.name}: {description}" if description else trait.name)


def _quoted(text: str) -> str:
    """A trait's words in a claim are data: on one line, in quotation marks, with nothing that ends these or looks like a variable."""
    text = neutral(" ".join(text.split()), 2 * LONGEST_DESCRIPTION)[0]
    marks = dict.fromkeys(map(ord, '"“”„'), "'")
    return f"“{_BRACES.sub(' ', text.translate(marks))}”"
