"""Make propositions of a persona's traits: one for each trait that no proposition of a file is about (AC-6.1.5).

A trait that always or (nearly) never shows can be seen in a single message: at a strength of at most 0.1 or at least 0.7 it is judged
message by message, in between once over the window, since one message says nothing about "sometimes". At strength 0 the claim is that
the agent does it, inverted. A proposition in a file that names the trait replaces it. The id speaks of the trait's name alone; what the
trait is now (description, band) is in the digest: after a change no comparison takes the proposition for the same.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agents.kit.text.fences import safe_and_cut
from agents.personas.persona import BANDS, ROUNDING, TraitLike, strength_band
from evaluation.dimensions import OF_PERSONA
from evaluation.propositions.schema import Proposition

# Strengths up to the first, and from the second on, show in a single message.
SHOWS_IN_A_MESSAGE_UP_TO = 0.1
SHOWS_IN_A_MESSAGE_FROM = 0.7
COVERED_ABOVE = BANDS[1][0]  # a claim in a file says that the trait shows: not when it is to show rarely or never
FROM_A_TRAIT = "trait"
LONGEST_TRAIT_ID = 80  # characters of the name in an id
LONGEST_DESCRIPTION = 600
_BETWEEN_BRACES = re.compile(r"(?<=\{)(?=\{)|(?<=\})(?=\})")  # where a space leaves no variable

_CLAIM_STOPPED = "{{agent_name}} does in this message what the persona has ruled out under “Never”: %s"
_CLAIM_RARE = "{{agent_name}} leaves out of this message, or hardly hints at, what the persona does rarely: %s"
_CLAIM_STRONG = "{{agent_name}} shows in this message what the persona %s does: %s"
_CLAIM_NOW_AND_THEN = "{{agent_name}} does this %s, as the persona says, over all these messages together: %s"
_CLAIM_PRESENCE = "{{agent_name}} does this in the message: %s"
_ADVICE_BY_BAND = {
    BANDS[0][1]: "Leave this out altogether: %s.",
    BANDS[1][1]: "Let this show rarely: %s.",
    BANDS[2][1]: "Let this show sometimes, not always: %s.",
    BANDS[3][1]: "Let this show in most of what you write: %s.",
    BANDS[4][1]: "Let this show whenever you write: %s.",
}


def with_traits(
    propositions: Sequence[Proposition], traits: Iterable[TraitLike], *, automatic: bool = True
) -> list[Proposition]:
    """Return an agent's propositions of adherence from files, joined with those of its traits.

    A claim that names a trait is asked as long as the trait shows (above 0.25; with `trait_stopped` at 0), and is then the only one about
    it; otherwise the automatic one is. One whose trait the agent has not is asked all the same, unless its file is for all agents.
    Without `automatic` there are those of files alone.
    """
    ordered = sorted(traits, key=lambda trait: (trait.name.casefold(), trait.name))
    by_name = {trait.name.casefold(): trait for trait in ordered}
    in_use: list[Proposition] = []
    covered: set[str] = set()
    for proposition in propositions:
        if not proposition.trait:
            in_use.append(proposition)
            continue
        name = proposition.trait.casefold()
        trait = by_name.get(name)
        if trait is None:  # a default cannot know which traits an agent has; a claim of its own file is meant
            if not proposition.for_all:
                in_use.append(proposition)
        elif covers(proposition, trait):
            covered.add(name)
            in_use.append(replace(proposition, trait_now=_state(trait)))
    if not automatic:
        return in_use
    ids_in_use = {proposition.id for proposition in propositions}
    for trait in ordered:
        if trait.name.casefold() not in covered:
            proposition = _automatic(trait, ids_in_use)
            ids_in_use.add(proposition.id)
            in_use.append(proposition)
    return in_use


def covers(proposition: Proposition, trait: TraitLike) -> bool:
    """Return whether a claim that names this trait speaks of it as strong as it is now.

    One with `trait_stopped` speaks of strength 0, any other of a trait that shows: above 0.25, where rarely ends.
    """
    is_stopped = trait.strength == 0
    if proposition.trait_stopped or is_stopped:
        return proposition.trait_stopped and is_stopped
    return trait.strength > COVERED_ABOVE + ROUNDING


def of_a_message(strength: float) -> bool:
    """Return whether a trait of this strength (0 to 1) is judged message by message."""
    shows_rarely = strength <= SHOWS_IN_A_MESSAGE_UP_TO + ROUNDING
    shows_mostly = strength >= SHOWS_IN_A_MESSAGE_FROM - ROUNDING
    return shows_rarely or shows_mostly


def trait_id(name: str, in_use: Iterable[str] = ()) -> str:
    """Return ``trait-concise-replies`` for *Concise replies*, whatever its case.

    A name that loses something on the way, or whose id is `in_use`, gets a few hex digits of the name, so that the id depends on no
    other trait.
    """
    plain = unicodedata.normalize("NFKC", name.casefold()).casefold()
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    slug = "-".join(re.findall(r"[a-z0-9]+", ascii_only))[:LONGEST_TRAIT_ID].strip("-")
    is_whole = bool(slug) and slug == "-".join(re.split(r"[\s_-]+", plain.strip()))
    short_id = f"trait-{slug}"
    if is_whole and short_id not in in_use:
        return short_id
    digits = hashlib.sha256(name.casefold().encode()).hexdigest()[:6]
    return f"trait-{slug}-{digits}" if slug else f"trait-{digits}"


def presence(trait: TraitLike) -> Proposition:
    """Return the claim that a message shows the trait, whatever its strength; the judge is not shown the persona.

    Its scores before and after a change of the strength can be compared, because the claim stays the same.
    """
    return Proposition(
        dimension=OF_PERSONA,
        id=trait_id(trait.name),
        claim=_CLAIM_PRESENCE % _name_and_description(trait),
        include_personas=False,
        source=FROM_A_TRAIT,
        trait=trait.name,
        trait_now=_state(trait),
        recommendations="–",  # none is asked for
    )


def _automatic(trait: TraitLike, ids_in_use: set[str]) -> Proposition:
    """Return the proposition of a trait that no file is about; at strength 0 it claims what is not to be done, and is inverted."""
    band = strength_band(trait.strength)
    is_stopped = trait.strength == 0
    return Proposition(
        dimension=OF_PERSONA,
        id=trait_id(trait.name, ids_in_use),
        claim=_claim(trait, band.lower()),
        inverted=is_stopped,
        recommendations=_ADVICE_BY_BAND[band] % _in_quotes(trait.name),
        source=FROM_A_TRAIT,
        trait=trait.name,
        trait_stopped=is_stopped,
        trait_now=_state(trait),
        over_window=not of_a_message(trait.strength),
    )


def _claim(trait: TraitLike, band: str) -> str:
    if trait.strength == 0:  # its description may say what to do instead: the name says what is stopped
        return _CLAIM_STOPPED % _in_quotes(trait.name)
    described = _name_and_description(trait)
    if not of_a_message(trait.strength):
        return _CLAIM_NOW_AND_THEN % (band, described)
    if trait.strength < 0.5:
        return _CLAIM_RARE % described
    return _CLAIM_STRONG % (band, described)


def _state(trait: TraitLike) -> str:
    """Return all of a trait that makes its proposition another one when it changes."""
    return f"{strength_band(trait.strength)}: {trait.name.casefold()}: {' '.join(trait.description.split())}"


def _name_and_description(trait: TraitLike) -> str:
    description = " ".join(trait.description.split())
    if len(description) > LONGEST_DESCRIPTION:
        description = f"{description[:LONGEST_DESCRIPTION]}…"
    return _in_quotes(f"{trait.name}: {description}" if description else trait.name)


def _in_quotes(text: str) -> str:
    """Return a trait's words as data: on one line, in quotation marks, with nothing that ends these or looks like a variable."""
    text = safe_and_cut(" ".join(text.split()), 2 * LONGEST_DESCRIPTION)
    marks = dict.fromkeys(map(ord, '"“”„'), "'")
    return f"“{_BETWEEN_BRACES.sub(' ', text.translate(marks))}”"
