"""The interventions of an agent: the two built-in ones (AC-7.1.6, AC-7.1.7), operators' rows, and the batches of a team's code."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.utils.module_loading import import_string

from agents.kit.text.storable import storable
from agents.models import Agent
from correction.config.settings import ResolvedConfig
from correction.interventions.functions import Finding, InterventionContext, speaker
from correction.interventions.intervention import (
    LONGEST_NAME,
    About,
    AnyPrecondition,
    Effect,
    FunctionalPrecondition,
    Intervention,
    PropositionalPrecondition,
    TextualPrecondition,
)
from correction.interventions.models import Intervention as InterventionRow
from correction.interventions.nudges import AGAINST_CONVERGENCE, FOR_VARIETY, NudgeType, nudge_effect, text_effect
from evaluation.propositions.files import read_mapping
from evaluation.propositions.schema import Proposition, PropositionSpec, fill

ANTI_CONVERGENCE = "anti_convergence"
VARIETY = "variety"
CONVERGENCE_WINDOW = 10  # messages of the channel, of all speakers
FEWEST_SPEAKERS = 3  # of them, before agreement of a group can be spoken of
FEWEST_MESSAGES = 4
ASK_EVERY = 5  # messages of the channel between two questions to the judge, whichever agent's turn it is
VARIETY_WINDOW = 20
COOLDOWN = 5  # messages in the channel after a nudge: time for the others to answer it


def anti_convergence(config: ResolvedConfig) -> Intervention:
    """Return the intervention that nudges towards disagreement when a channel only agrees (AC-7.1.6).

    Fires when the last 10 messages of the channel are at least 4 messages of at least 3 speakers, this agent among them or not, and the
    judge scores the claim that they merely agree at `convergence_threshold` or higher (0 to 9). No words or statistics tell agreement
    from other talk, so an offline judge leaves the claim unscored and nothing fires.
    """
    claim = Proposition(
        dimension="",  # it measures none
        id=ANTI_CONVERGENCE,
        claim=_claims()[ANTI_CONVERGENCE].claim,
        include_personas=False,
        target_type="environment",
    )
    return Intervention(
        name=ANTI_CONVERGENCE,
        preconditions=(
            FunctionalPrecondition(
                test=_is_group, text=f"at least {FEWEST_SPEAKERS} speakers and {FEWEST_MESSAGES} messages"
            ),
            PropositionalPrecondition(proposition=claim, threshold=config["convergence_threshold"], fires_below=False),
        ),
        effect=nudge_effect(*AGAINST_CONVERGENCE),
        window=CONVERGENCE_WINDOW,
        cooldown_messages=COOLDOWN,
        dm_allowed=config["anti_convergence_dm_allowed"],
        ask_every=ASK_EVERY,
    )


def variety(config: ResolvedConfig) -> Intervention:
    """Return the intervention that nudges towards completely new ideas (AC-7.1.7).

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
        dm_allowed=config["variety_dm_allowed"],
    )


# By name: the setting that switches it on, and what makes it.
BUILT_IN: dict[str, tuple[str, Callable[[ResolvedConfig], Intervention]]] = {
    ANTI_CONVERGENCE: ("anti_convergence_enabled", anti_convergence),
    VARIETY: ("variety_intervention_enabled", variety),
}


def interventions_for(agent: Agent, config: ResolvedConfig) -> list[Intervention]:
    """Return what is evaluated in an agent's turns: built-in ones that its configuration enables (AC-7.1.12), enabled rows, and batches.

    One of a batch whose name is taken is replaced by one that never fires and says so in its log.
    """
    interventions = [make(config) for switch, make in BUILT_IN.values() if config[switch]]
    interventions += [from_row(row) for row in rows_for(agent)]
    if not settings.INTERVENTION_BATCHES:
        return interventions
    # Cooldowns and costs are kept by name: two of one name would share them.
    taken = {*BUILT_IN, *(intervention.name for intervention in interventions)}
    for from_batch in batches_for(agent):
        if from_batch.name in taken:
            from_batch = unusable(from_batch.name, f"{from_batch.name!r} is the name of another intervention")
        interventions.append(from_batch)
    return interventions


def batches_for(agent: Agent) -> list[Intervention]:
    """Return those for this agent of the batches that the functions of `INTERVENTION_BATCHES` return.

    For a function that raises, one that never fires and says why in its log; its name is the function's.
    """
    interventions: list[Intervention] = []
    for path in settings.INTERVENTION_BATCHES:
        try:
            interventions += import_string(path)().for_agent(agent)
        except Exception as error:  # a team's mistake must not cost the turn its other interventions
            logger.exception("the batch %s cannot be used", path)
            name = path.rpartition(".")[2]
            interventions.append(unusable(name[:LONGEST_NAME], f"{path}: {type(error).__name__}: {error}"))
    return interventions


def unusable(name: str, why: str) -> Intervention:
    """Return an intervention that never fires, and whose log says why."""
    never = FunctionalPrecondition(test=lambda context: Finding(held=None, reasoning=why), text="it cannot be used")
    return Intervention(name=name, preconditions=(never,), effect=text_effect(""), dm_allowed=True)


def _is_group(context: InterventionContext) -> Finding:
    """Find out whether enough speakers said enough for a group to agree."""
    messages = len(context.messages)
    speakers = len({speaker(message) for message in context.messages})
    return Finding(
        speakers >= FEWEST_SPEAKERS and messages >= FEWEST_MESSAGES,
        f"{speakers} speakers and {messages} messages, at least {FEWEST_SPEAKERS} and {FEWEST_MESSAGES}",
    )


@lru_cache(maxsize=1)
def _claims() -> Mapping[str, PropositionSpec]:
    """Read the claims of the built-in interventions, by their names."""
    _, data = read_mapping(Path(__file__).with_name("builtin.yaml"), "the claims")
    return {name: PropositionSpec.model_validate(spec) for name, spec in data.items()}


logger = logging.getLogger(__name__)
CLAIM_VARIABLES = ("agent_name", "channel_name")


def rows_for(agent: Agent) -> list[InterventionRow]:
    """Return the enabled rows for this agent: those that name it, and those that name no agent. One query."""
    named_agents = InterventionRow.agents.through.objects.filter(intervention=OuterRef("pk"))
    enabled = InterventionRow.objects.filter(is_enabled=True)
    return list(enabled.filter(Exists(named_agents.filter(agent=agent)) | ~Exists(named_agents)))


def from_row(row: InterventionRow) -> Intervention:
    """Return the intervention a row describes. A row that cannot be used becomes one that never fires, and whose log says why."""
    try:
        return Intervention(
            name=row.slug,
            preconditions=_preconditions_of(row),
            effect=_effect_of(row),
            window=row.window,
            cooldown_messages=row.cooldown_messages,
            dm_allowed=row.dm_allowed,
            row_id=row.pk,
        )
    except ValueError as error:
        logger.warning("intervention %s cannot be used: %s", row.slug, error)
        return replace(unusable(row.slug, str(error)), dm_allowed=row.dm_allowed, row_id=row.pk)


def problems_of(row: InterventionRow) -> dict[str, str]:
    """Return what is wrong with a row that its columns alone cannot tell: field name to a sentence; empty where nothing is.

    Looks at its name, function, the variables of its claims, and its nudge. For forms and the API.
    """
    problems: dict[str, str] = {}
    if row.slug in BUILT_IN:
        problems["slug"] = f"{row.slug!r} is the name of a built-in intervention; choose another."
    problems |= _problem_of_function(row)
    for name in ("textual_claim", "proposition_claim"):
        try:
            fill(getattr(row, name), dict.fromkeys(CLAIM_VARIABLES, ""))  # refuses other variables
        except ValueError:
            allowed = ", ".join("{{" + variable + "}}" for variable in CLAIM_VARIABLES)
            problems[name] = f"It uses a variable that has no value here; allowed: {allowed}."
    try:
        _effect_of(row)
    except ValueError as error:
        problems["nudge" if row.nudge else "nudge_type"] = str(error)  # at the field that was filled in
    return problems


def _problem_of_function(row: InterventionRow) -> dict[str, str]:
    """Return what is wrong with the row's function or its parameters: field name to a sentence; empty where nothing is."""
    try:
        _functional_preconditions(row)
    except ValueError as error:
        is_about_parameters = str(error).startswith(f"{row.function}: ")  # as each of these sentences begins
        return {"function_parameters" if is_about_parameters else "function": str(error)}
    problem = unstorable(row.function_parameters)
    if problem:
        return {"function_parameters": problem}
    return {}


def unstorable(parameters: Any) -> str:
    """Return a sentence on why no database can store these parameters; empty when it can."""
    try:
        json.dumps(parameters, allow_nan=False)
    except ValueError:
        return "Numbers must be finite: NaN and Infinity are not JSON."
    if storable(parameters) != parameters:
        return "A text holds NUL or half a character, which no database stores."
    return ""


def _preconditions_of(row: InterventionRow) -> tuple[AnyPrecondition, ...]:
    """Return the preconditions a row describes: its function, its textual and its propositional claim, each where it has one.

    Raises:
        ValueError: One cannot be used.
    """
    preconditions: list[AnyPrecondition] = [*_functional_preconditions(row)]
    if row.textual_claim.strip():
        # A claim that names the agent is asked about it; another one about all who take part.
        about: About = "agent" if "agent_name" in row.textual_claim else "conversation"
        preconditions.append(TextualPrecondition(claim=row.textual_claim.strip(), about=about))
    if row.proposition_claim.strip():
        proposition = Proposition(dimension="", id=row.slug, claim=row.proposition_claim.strip())
        preconditions.append(PropositionalPrecondition(proposition=proposition, threshold=row.proposition_threshold))
    return tuple(preconditions)


def _functional_preconditions(row: InterventionRow) -> list[FunctionalPrecondition]:
    """Return the row's functional precondition as a list of one; an empty list where it names no function.

    Raises:
        ValueError: There is no such function, or its parameters do not fit.
    """
    if not row.function:
        return []
    if not isinstance(row.function_parameters, dict):
        raise ValueError(f'{row.function}: parameters are an object, e.g. {{"at_least": 7}}')
    return [FunctionalPrecondition.named(row.function, row.function_parameters)]


def _effect_of(row: InterventionRow) -> Effect:
    """Return what the row adds to the prompt: its own text, else the agent's text of its kind.

    Raises:
        ValueError: It has neither, or one that cannot be used.
    """
    if row.nudge_type and row.nudge_type not in NudgeType.values:
        raise ValueError(f"nudge_type {row.nudge_type!r} is unknown; allowed: {', '.join(NudgeType.values)}")
    if row.nudge.strip():
        return text_effect(row.nudge, row.nudge_type)
    if not row.nudge_type:
        raise ValueError(f"give a nudge, or the kind of one: {', '.join(NudgeType.values)}")
    return nudge_effect(NudgeType(row.nudge_type))
