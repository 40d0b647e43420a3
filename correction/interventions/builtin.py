"""The two interventions that come with the house: against convergence, and for variety (AC-7.1.6, AC-7.1.7)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from correction.config import ResolvedConfig
from correction.interventions.intervention import Intervention
from correction.interventions.nudges import AGAINST_CONVERGENCE, FOR_VARIETY, nudge_effect
from correction.interventions.preconditions import FunctionalPrecondition, TextualPrecondition
from evaluation.proposition_schema import PropositionSpec
from evaluation.yaml_files import read_mapping

ANTI_CONVERGENCE, VARIETY = "anti_convergence", "variety"
CONVERGENCE_WINDOW = 10  # messages of the channel, whoever sent them
VARIETY_WINDOW = 20
COOLDOWN = 5  # messages in the channel after a nudge: time for the others to answer it


def anti_convergence(config: ResolvedConfig) -> Intervention:
    """Nudges towards disagreement when a channel only agrees.

    Fires when, over the last 10 messages of the channel (of every speaker, this agent among them), the mean share of content words
    that two speakers have in common is at least `convergence_threshold`, and the judge then finds that they merely agree.
    """
    similarity = float(config["convergence_threshold"])
    return Intervention(
        name=ANTI_CONVERGENCE,
        preconditions=(
            FunctionalPrecondition.named("vocabulary_similarity", {"at_least": similarity}),
            _claim(ANTI_CONVERGENCE),
        ),
        effect=nudge_effect(*AGAINST_CONVERGENCE),
        window=CONVERGENCE_WINDOW,
        cooldown_messages=COOLDOWN,
    )


def variety(config: ResolvedConfig) -> Intervention:
    """Nudges towards completely new ideas.

    Fires when the agent has sent at least `variety_message_threshold` messages in the channel, and the judge finds in the last 20
    messages of the channel that the agent brings nothing new.
    """
    return Intervention(
        name=VARIETY,
        preconditions=(
            FunctionalPrecondition.named("message_count", {"at_least": config["variety_message_threshold"]}),
            _claim(VARIETY, about_agent=True),
        ),
        effect=nudge_effect(*FOR_VARIETY),
        window=VARIETY_WINDOW,
        cooldown_messages=COOLDOWN,
    )


def enabled_builtins(config: ResolvedConfig) -> list[Intervention]:
    """Those that this agent's configuration enables (AC-7.1.12)."""
    found = [anti_convergence(config)] if config["anti_convergence_enabled"] else []
    return found + ([variety(config)] if config["variety_intervention_enabled"] else [])


def _claim(name: str, *, about_agent: bool = False) -> TextualPrecondition:
    spec = _claims()[name]
    return TextualPrecondition(claim=spec.claim, cues=spec.cues, about="agent" if about_agent else "conversation")


@lru_cache(maxsize=1)
def _claims() -> Mapping[str, PropositionSpec]:
    _, data = read_mapping(Path(__file__).with_name("builtin.yaml"), "the claims")
    return {name: PropositionSpec.model_validate(spec) for name, spec in data.items()}
