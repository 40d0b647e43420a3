"""The two interventions that come with the house: against convergence, and for variety (AC-7.1.6, AC-7.1.7)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from correction.config import ResolvedConfig
from correction.interventions.context import InterventionContext
from correction.interventions.functions import Finding, speaker
from correction.interventions.intervention import Intervention
from correction.interventions.nudges import AGAINST_CONVERGENCE, FOR_VARIETY, nudge_effect
from correction.interventions.preconditions import (
    FunctionalPrecondition,
    PropositionalPrecondition,
    TextualPrecondition,
)
from evaluation.propositions.schema import Proposition, PropositionSpec
from evaluation.propositions.yaml_files import read_mapping

ANTI_CONVERGENCE, VARIETY = "anti_convergence", "variety"
CONVERGENCE_WINDOW = 10  # messages of the channel, whoever sent them
FEWEST_SPEAKERS, FEWEST_MESSAGES = 3, 4  # of them, before agreement of a group can be spoken of
ASK_EVERY = 5  # messages of the channel between two questions to the judge, whichever agent's turn it is
VARIETY_WINDOW = 20
COOLDOWN = 5  # messages in the channel after a nudge: time for the others to answer it


def anti_convergence(config: ResolvedConfig) -> Intervention:
    """Nudges towards disagreement when a channel only agrees.

    Fires when the last 10 messages of the channel are at least 4 messages of at least 3 speakers, this agent among them or not, and the
    judge scores the claim that they merely agree at `convergence_threshold` or higher (0 to 9). No words or statistics tell agreement
    from other talk, so an offline judge leaves the claim unscored and nothing fires.
    """
    claim = Proposition(
        dimension="",
        id=ANTI_CONVERGENCE,
        claim=_claims()[ANTI_CONVERGENCE].claim,
        include_personas=False,
        target_type="environment",
    )
    return Intervention(
        name=ANTI_CONVERGENCE,
        preconditions=(
            FunctionalPrecondition(
                test=_group, text=f"at least {FEWEST_SPEAKERS} speakers and {FEWEST_MESSAGES} messages"
            ),
            PropositionalPrecondition(proposition=claim, threshold=config["convergence_threshold"], fires_below=False),
        ),
        effect=nudge_effect(*AGAINST_CONVERGENCE),
        window=CONVERGENCE_WINDOW,
        cooldown_messages=COOLDOWN,
        ask_every=ASK_EVERY,
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
            TextualPrecondition(claim=_claims()[VARIETY].claim, cues=_claims()[VARIETY].cues, about="agent"),
        ),
        effect=nudge_effect(*FOR_VARIETY),
        window=VARIETY_WINDOW,
        cooldown_messages=COOLDOWN,
    )


def enabled_builtins(config: ResolvedConfig) -> list[Intervention]:
    """Those that this agent's configuration enables (AC-7.1.12)."""
    found = [anti_convergence(config)] if config["anti_convergence_enabled"] else []
    return found + ([variety(config)] if config["variety_intervention_enabled"] else [])


def _group(context: InterventionContext) -> Finding:
    speakers, messages = len({speaker(message) for message in context.messages}), len(context.messages)
    held = speakers >= FEWEST_SPEAKERS and messages >= FEWEST_MESSAGES
    return Finding(
        held, f"{speakers} speakers and {messages} messages, at least {FEWEST_SPEAKERS} and {FEWEST_MESSAGES}"
    )


@lru_cache(maxsize=1)
def _claims() -> Mapping[str, PropositionSpec]:
    _, data = read_mapping(Path(__file__).with_name("builtin.yaml"), "the claims")
    return {name: PropositionSpec.model_validate(spec) for name, spec in data.items()}
