"""The resolved proposition the engine works with, and its claim with the variables filled in."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evaluation.proposition_schema import (
    VARIABLE,
    WINDOW_DEFAULTS,
    Cues,
    PropositionFile,
    PropositionSpec,
    first_given,
)
from evaluation.rules import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposition:
    """A proposition with everything inherited and merged; immutable, so that no two runs can disturb each other.

    Attributes:
        source: The file and line it stands in.
        quote: The words of the persona it was drafted from.
        trait: Name of the trait it speaks of (`trait_stopped`: at strength 0); empty for most.
        trait_now: That trait as the agent has it: a change of it makes this another proposition.
        over_window: Judged once over the window instead of message by message.
        everybody: Whether it stands in a file for all agents.
    """

    dimension: str
    id: str
    claim: str
    weight: float = 1.0
    inverted: bool = False
    hard: bool = False
    include_personas: bool = True
    target_type: str = "agent"
    first_n: int = 10
    last_n: int = 100
    recommendations: str = ""
    precondition: str | None = None
    rule: Rule | None = None
    cues: Cues | None = None
    measure: str | None = None
    source: str = ""
    active: bool = True
    rejected: bool = False
    retired: bool = False
    quote: str = ""
    trait: str = ""
    trait_stopped: bool = False
    trait_now: str = ""
    over_window: bool = False
    everybody: bool = False

    @property
    def context_key(self) -> tuple[bool, str, int, int, bool]:
        """Propositions with the same key about the same message can share one call, and the same rubric."""
        return (self.include_personas, self.target_type, self.first_n, self.last_n, self.hard)

    def fingerprint(self) -> dict[str, object]:
        """Everything that can change a score, for the digest."""
        return {
            "dimension": self.dimension,
            "id": self.id,
            "claim": self.claim,
            "weight": self.weight,
            "inverted": self.inverted,
            "hard": self.hard,
            "context": list(self.context_key),
            "precondition": self.precondition,
            "rule": self.rule.checks() if self.rule else None,
            "cues": self.cues.model_dump() if self.cues else None,
            "measure": self.measure,
            **({"trait": self.trait_now, "over_window": self.over_window} if self.trait_now else {}),
        }


def resolve(spec: PropositionSpec, file: PropositionFile, source: str, *, everybody: bool = False) -> Proposition:
    """A proposition with what it inherits from its file; `everybody` says that it stands in one for all agents."""
    first_n, last_n = WINDOW_DEFAULTS[file.level]
    return Proposition(
        dimension=file.dimension,
        id=spec.id,
        claim=spec.claim.strip(),
        weight=spec.weight,
        inverted=spec.inverted,
        hard=spec.hard,
        include_personas=first_given(spec.include_personas, file.include_personas, True),
        target_type=file.target_type,
        first_n=first_given(spec.first_n, file.first_n, first_n),
        last_n=first_given(spec.last_n, file.last_n, last_n),
        recommendations=spec.recommendations_for_improvement.strip(),
        precondition=spec.precondition,
        rule=spec.rule,
        cues=spec.cues,
        measure=spec.measure,
        source=source,
        active=spec.active,
        rejected=spec.rejected,
        retired=spec.retired,
        quote=spec.source.strip(),
        trait=(spec.trait or "").strip(),
        trait_stopped=spec.trait_stopped,
        everybody=everybody,
    )


def fill(claim: str, variables: Mapping[str, str]) -> str:
    """Put the variables into a claim (AC-6.0.3), once: a value that looks like a variable stays as it is.

    Raises:
        ValueError: The claim uses a variable that has no value here.
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in variables:
            raise ValueError(
                f"the claim uses {{{{{name}}}}}, which has no value here; given: {', '.join(sorted(variables)) or 'none'}"
            )
        return variables[name]

    return VARIABLE.sub(value, claim)


def propositions_digest(propositions: Iterable[Proposition]) -> str:
    """SHA-256 (hex) of a set of propositions: equal when nothing that can change a score differs."""
    rows = sorted((p.fingerprint() for p in propositions), key=lambda row: (str(row["dimension"]), str(row["id"])))
    return hashlib.sha256(json.dumps(rows, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
