"""Interventions that operators wrote down as rows, made into interventions."""

from __future__ import annotations

import json
import logging
from typing import Any

from django.db.models import Exists, OuterRef

from agents.llm.extraction import storable
from agents.models import Agent
from correction.interventions.builtin import ANTI_CONVERGENCE, VARIETY
from correction.interventions.functions import Finding
from correction.interventions.intervention import AnyPrecondition, Effect, Intervention
from correction.interventions.nudges import NudgeType, nudge_effect, text_effect
from correction.interventions.preconditions import (
    About,
    FunctionalPrecondition,
    PropositionalPrecondition,
    TextualPrecondition,
)
from correction.models import Intervention as InterventionRow
from evaluation.propositions.schema import Proposition, fill

logger = logging.getLogger(__name__)
CLAIM_VARIABLES = ("agent_name", "channel_name")
BUILT_IN = (ANTI_CONVERGENCE, VARIETY)


def rows_for(agent: Agent) -> list[InterventionRow]:
    """The enabled rows for this agent: those that name it, and those that name nobody. One query."""
    chosen = InterventionRow.agents.through.objects.filter(intervention=OuterRef("pk"))
    enabled = InterventionRow.objects.filter(is_enabled=True)
    return list(enabled.filter(Exists(chosen.filter(agent=agent)) | ~Exists(chosen)))


def from_row(row: InterventionRow) -> Intervention:
    """The intervention a row describes. A row that cannot be used becomes one that never fires, and whose log says why."""
    try:
        return _build(row, _preconditions(row), _effect(row))
    except ValueError as error:
        logger.warning("intervention %s cannot be used: %s", row.slug, error)
        return _build(row, (_unusable(str(error)),), text_effect(""))


def problems_of(row: InterventionRow) -> dict[str, str]:
    """What is wrong with a row that its columns alone cannot tell: field name to a sentence. For forms and the API."""
    problems: dict[str, str] = {}
    if row.slug in BUILT_IN:
        problems["slug"] = f"{row.slug!r} is the name of a built-in intervention; choose another."
    try:
        _functional(row)
        if problem := unstorable(row.function_parameters):
            problems["function_parameters"] = problem
    except ValueError as error:
        problems["function_parameters" if str(error).startswith(f"{row.function}: ") else "function"] = str(error)
    for name in ("textual_claim", "proposition_claim"):
        try:
            fill(getattr(row, name), dict.fromkeys(CLAIM_VARIABLES, ""))
        except ValueError:
            allowed = ", ".join("{{" + variable + "}}" for variable in CLAIM_VARIABLES)
            problems[name] = f"It uses a variable that has no value here; allowed: {allowed}."
    try:
        _effect(row)
    except ValueError as error:
        problems["nudge" if row.nudge else "nudge_type"] = str(error)
    return problems


def unstorable(parameters: Any) -> str:
    """Why no database can keep these parameters, in a sentence; empty when it can."""
    try:
        json.dumps(parameters, allow_nan=False)
    except ValueError:
        return "Numbers must be finite: NaN and Infinity are not JSON."
    if storable(parameters) != parameters:
        return "A text holds NUL or half a character, which no database keeps."
    return ""


def _build(row: InterventionRow, preconditions: tuple[AnyPrecondition, ...], effect: Effect) -> Intervention:
    return Intervention(
        name=row.slug,
        preconditions=preconditions,
        effect=effect,
        window=row.window,
        cooldown_messages=row.cooldown_messages,
        dm_allowed=row.dm_allowed,
        row_id=row.pk,
    )


def _preconditions(row: InterventionRow) -> tuple[AnyPrecondition, ...]:
    found: list[AnyPrecondition] = [*_functional(row)]
    if row.textual_claim.strip():
        about: About = "agent" if "agent_name" in row.textual_claim else "conversation"
        found.append(TextualPrecondition(claim=row.textual_claim.strip(), about=about))
    if row.proposition_claim.strip():
        proposition = Proposition(dimension="", id=row.slug, claim=row.proposition_claim.strip())
        found.append(PropositionalPrecondition(proposition=proposition, threshold=row.proposition_threshold))
    return tuple(found)


def _functional(row: InterventionRow) -> list[FunctionalPrecondition]:
    if not row.function:
        return []
    if not isinstance(row.function_parameters, dict):
        raise ValueError(f'{row.function}: parameters are an object, e.g. {{"at_least": 7}}')
    return [FunctionalPrecondition.named(row.function, row.function_parameters)]


def _effect(row: InterventionRow) -> Effect:
    if row.nudge_type and row.nudge_type not in NudgeType.values:
        raise ValueError(f"nudge_type {row.nudge_type!r} is unknown; allowed: {', '.join(NudgeType.values)}")
    if row.nudge.strip():
        return text_effect(row.nudge, row.nudge_type)
    if not row.nudge_type:
        raise ValueError(f"give a nudge, or the kind of one: {', '.join(NudgeType.values)}")
    return nudge_effect(NudgeType(row.nudge_type))


def _unusable(reason: str) -> FunctionalPrecondition:
    return FunctionalPrecondition(test=lambda context: Finding(None, reason), text="the row as it was written")
