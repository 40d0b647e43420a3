"""What becomes of a proposal: a draft that can stand in a file, or the reason why not. Nothing is repaired that changes its meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from agents.llm.answers import describe_validation, storable
from agents.llm.answers import one_line as shortened
from agents.text.fences import neutral
from evaluation.drafting.quotes import bare, quote_problem
from evaluation.drafting.sameness import Existing, says_the_same
from evaluation.propositions.schema import PropositionFile, PropositionSpec
from evaluation.propositions.yaml_files import in_words, location_of

NAME = "{{agent_name}}"
MOST_CUES = 40
LONGEST_ID = 60  # of what is proposed; the agent's slug stands before it


def _texts(value: Any) -> Any:
    return [] if value is None else value


def _mapping(value: Any) -> Any:
    return {} if value is None else value


class Proposal(BaseModel):
    """One entry of an answer. What it says beyond this (a weight, that it is active) is not asked for and not taken."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    claim: str
    quote: str
    id: str = ""
    inverted: bool = False
    rule: Annotated[dict[str, Any], BeforeValidator(_mapping)] = {}
    supports: Annotated[list[str], BeforeValidator(_texts)] = []
    contradicts: Annotated[list[str], BeforeValidator(_texts)] = []
    recommendation: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposal that can be used: the entry of a file, in the order of its fields."""

    entry: Mapping[str, Any]
    spec: PropositionSpec


@dataclass(frozen=True, slots=True)
class Dropped:
    """A proposal that cannot be used: its claim, and why."""

    what: str
    reason: str


class Unusable(ValueError):
    """Why a proposal cannot be used."""


@dataclass(slots=True)
class Sieve:
    """Lets those proposals about one agent pass that say something new of the persona and can be checked.

    Attributes:
        slug: The agent's.
        name: Its display name.
        persona: As it was shown to who proposes.
        existing: Propositions and drafts that speak of the agent already.
        taken: Ids that are in use.
    """

    slug: str
    name: str
    persona: str
    existing: list[Existing] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def sift(self, proposals: Sequence[Any], *, most: int) -> Iterator[Draft | Dropped]:
        """A draft or the reason against it for each proposal, in order; of more than `most` drafts the rest is dropped."""
        passed = 0
        for raw in proposals:
            try:
                draft = self._draft(storable(raw))
                if passed == most:
                    raise Unusable(f"there are {most} drafts already")
            except Unusable as problem:
                yield Dropped(_label(raw), str(problem))
                continue
            passed += 1
            self.taken.add(draft.spec.id)
            self.existing.append(Existing.of(draft.spec))
            yield draft

    def _draft(self, raw: Any) -> Draft:
        try:
            proposal = Proposal.model_validate(raw)
        except ValidationError as error:
            raise Unusable(describe_validation(error)) from None
        if problem := quote_problem(proposal.quote, self.persona):
            raise Unusable(problem)
        entry = self._entry(proposal)
        spec = _validated(entry, self.slug)
        if same := says_the_same(Existing.of(spec), self.existing):
            raise Unusable(f"says the same as {same}")
        return Draft(entry, spec)

    def _entry(self, proposal: Proposal) -> dict[str, Any]:
        """The proposal as it would stand in a file, inactive."""
        claim = _one_line(proposal.claim)
        if self.name:
            claim = re.sub(rf"(?<!\w){re.escape(self.name)}(?!\w)", NAME, claim)
        if NAME not in claim:
            raise Unusable(f"the claim does not speak of {NAME}")
        rule = {key: _clean(key, value) for key, value in proposal.rule.items() if value not in (None, False, "", [])}
        if rule and proposal.inverted:
            raise Unusable("a rule says what must hold, it is not inverted")
        entry: dict[str, Any] = {"id": self._id(proposal), "active": False, "claim": claim}
        if proposal.inverted:
            entry["inverted"] = True
        if advice := _one_line(proposal.recommendation):
            entry["recommendations_for_improvement"] = advice
        cues = {"supports": _cues(proposal.supports), "contradicts": _cues(proposal.contradicts)}
        if rule:
            entry["rule"] = rule
        elif any(cues.values()):
            entry["cues"] = {key: value for key, value in cues.items() if value}
        entry["source"] = bare(_one_line(proposal.quote))
        return entry

    def _id(self, proposal: Proposal) -> str:
        """``<agent>-<what>``, with a number where that is taken."""
        agent = slugified(self.slug) or "agent"
        named = slugified(proposal.id).removeprefix(f"{agent}-") or slugified(proposal.claim.replace(NAME, ""))
        words = named[:LONGEST_ID].strip("-") or "draft"
        wanted, number = f"{agent[:50].strip('-')}-{words}", 1
        found = wanted
        while found in self.taken:
            number += 1
            found = f"{wanted}-{number}"
        return found


def slugified(text: str) -> str:
    """Lower-case letters and digits, everything else one hyphen."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _validated(entry: Mapping[str, Any], slug: str) -> PropositionSpec:
    """The entry as the loader would read it."""
    try:
        file = PropositionFile.model_validate({"dimension": "adherence", "agent_id": slug, "propositions": [entry]})
    except ValidationError as error:
        first = dict(error.errors()[0])
        place = ".".join(str(part) for part in location_of(first)[2:])
        problem = shortened(in_words(first, list(PropositionSpec.model_fields)), 200)
        raise Unusable(f"{place}: {problem}" if place else problem) from None
    return file.propositions[0]


def _clean(name: str, value: Any) -> Any:
    """A check's value as it may stand in a file."""
    if isinstance(value, str) and not value.isprintable():
        raise Unusable(f"rule.{name}: holds characters that cannot be seen")
    if isinstance(value, list):
        return [_one_line(one) if isinstance(one, str) else one for one in value]
    return value


def _cues(phrases: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(clean for phrase in phrases if (clean := _one_line(phrase))))[:MOST_CUES]


def _one_line(text: str) -> str:
    """Text that cannot be mistaken for anything else, wherever it is shown."""
    return " ".join(neutral(text)[0].split())


def _label(raw: Any) -> str:
    """What a person recognises a proposal by."""
    claim = raw.get("claim") if isinstance(raw, dict) else raw
    return shortened(claim if isinstance(claim, str) else repr(claim), 120)
