"""Find what keeps a scenario from being played on this installation: agents, stages, models, swarms and debates that are not here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.apps import apps
from django.utils.module_loading import import_string
from pydantic import ValidationError

from agents.kit.capability import declared_one
from agents.kit.llm.endpoints import problem_of
from agents.kit.refusals import Refused
from agents.models import Message
from agents.models.conversations import NO_AGENTS, agents_named, no_agent, slugs_offered
from agents.turn.pipeline import pipeline, stage_name
from evaluation.experiments.scenario import Arm, FieldPath, PlayedDebate, ScenarioProblem

SET_BY_EXPERIMENT = ("tags", "scene", "lines", "until", "apart", "debate")  # overrides that an arm cannot set
TURN_OVERRIDES = ("stages", "model", "system_prompt")  # overrides of the turn itself; the others are settings
SWARM_STAGES = {"calibration", "polish"}
NO_DEBATES = "debates are not installed; allowed: arms without a debate, or agents.debates in INSTALLED_APPS"
NO_SWARMS = "swarms are not installed; allowed: a population without swarms, or agents.swarm in INSTALLED_APPS"


class ExperimentRefused(Refused):
    """The experiment cannot be started. `problems` has all of them; each names the field, its value and what is allowed."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__({"scenario": "\n".join(problems)}, names_nothing=True)


def problems_here(scenario: Mapping[str, Any]) -> Iterator[ScenarioProblem]:
    """Yield what keeps a scenario from being played here, which the file alone does not tell.

    Args:
        scenario: As data; what of it cannot be read is left out.
    """
    for number, arm_data in enumerate(_list_in(scenario, "arms")):
        with suppress(ValidationError):
            yield from _below(("arms", number), _arm_problems(Arm.model_validate(arm_data)))
    yield from _swarm_problems(scenario)
    yield from _cast_problems(scenario)
    yield from _start_problems(scenario)


def _below(parent: FieldPath, problems: Iterable[ScenarioProblem]) -> Iterator[ScenarioProblem]:
    """Yield problems of a part of the scenario with their paths from the top."""
    for problem in problems:
        yield replace(problem, path=(*parent, *problem.path))


def _cast_problems(scenario: Mapping[str, Any]) -> Iterator[ScenarioProblem]:
    """Yield agents of the cast that do not exist or are inactive."""
    cast = _texts_in(scenario, "cast")
    agents = agents_named(cast)
    offered = slugs_offered() if len(agents) < len(set(cast)) else []
    if cast and not agents and not offered:
        yield ScenarioProblem(("cast",), NO_AGENTS)
        return
    for number, slug in enumerate(cast):
        if slug not in agents:
            yield ScenarioProblem(("cast", number), no_agent(slug, offered))
        elif not agents[slug].is_active:
            yield ScenarioProblem(("cast", number), f"{slug!r} is inactive; allowed: active agents")


def _start_problems(scenario: Mapping[str, Any]) -> Iterator[ScenarioProblem]:
    """Yield that there is no message to start from. A `start_from` of another form is reported by `Scenario`."""
    start = scenario.get("start_from")
    match = re.fullmatch(r"(.+)@([0-9]{1,18})", start) if isinstance(start, str) else None
    if match is None:
        return
    slug, position = match.groups()
    if not Message.objects.filter(channel__slug=slug, position=int(position)).exists():
        text = f"there is no message {position} in a channel {slug!r:.80}; allowed: CHANNEL@POSITION of a message"
        yield ScenarioProblem(("start_from",), text)


def _arm_problems(arm: Arm) -> Iterator[ScenarioProblem]:
    yield from _override_problems(arm)
    yield from _model_problems(arm)
    yield from _stage_problems(arm)
    if arm.debate is not None:
        yield from _debate_problems(arm.debate)


def _override_problems(arm: Arm) -> Iterator[ScenarioProblem]:
    """Yield overrides that an arm cannot have: set by the experiment itself, of no use in a debate, or refused by the app of settings.

    `stages` and `model` are checked elsewhere; a `system_prompt` is a text that is not blank.
    """
    settings = {name: value for name, value in arm.overrides.items() if name not in TURN_OVERRIDES}
    system_prompt = arm.overrides.get("system_prompt", "a persona")
    if not isinstance(system_prompt, str) or not system_prompt.strip():
        yield ScenarioProblem(("overrides", "system_prompt"), f"{system_prompt!r:.80}; allowed: the text of a persona")
    reserved = settings.keys() & set(SET_BY_EXPERIMENT)
    if reserved:
        allowed = f"allowed: {', '.join(TURN_OVERRIDES)}, settings"
        yield ScenarioProblem(("overrides",), f"{', '.join(sorted(reserved))}: set by the experiment; {allowed}")
        return
    if arm.debate is not None:
        ignored = arm.overrides.keys() - {"model"}
        if ignored:
            text = f"{', '.join(sorted(ignored))}: not in a debate; allowed: model"
            yield ScenarioProblem(("overrides",), text)
            return
    check_path = declared_one("turn_request_check")  # of the app that has the settings; empty where none is installed
    if not check_path:
        return
    check = import_string(check_path)
    for name, value in settings.items():
        for _, text in check(agent=None, channel=None, overrides={name: value}, session=""):
            yield ScenarioProblem(("overrides", name), text)


def _model_problems(arm: Arm) -> Iterator[ScenarioProblem]:
    model = arm.overrides.get("model", "")
    if not isinstance(model, str):
        yield ScenarioProblem(("overrides", "model"), f"{model!r:.80}; allowed: the name of a model")
        return
    problem = problem_of("actor", model) if model else ""
    if problem:
        yield ScenarioProblem(("overrides", "model"), problem)


def _stage_problems(arm: Arm) -> Iterator[ScenarioProblem]:
    stages = arm.overrides.get("stages", [])
    if isinstance(stages, list):
        yield from _unknown_stages(("overrides", "stages"), stages)
    else:
        text = f"{stages!r:.80}; allowed: a list of {', '.join(_known_stages())}"
        yield ScenarioProblem(("overrides", "stages"), text)
    yield from _unknown_stages(("treatment",), arm.treatment)


def _unknown_stages(parent: FieldPath, names: Sequence[Any]) -> Iterator[ScenarioProblem]:
    stages = _known_stages()
    for number, name in enumerate(names):
        if name not in stages:
            yield ScenarioProblem((*parent, number), f"stage {name!r:.80} is unknown; allowed: {', '.join(stages)}")


def _known_stages() -> list[str]:
    return [stage_name(stage) for stage in pipeline().stages]


def _debate_problems(debate: PlayedDebate) -> Iterator[ScenarioProblem]:
    """Yield that debates are not installed, the mode is unknown, or the rounds or settings are not allowed in it."""
    if not apps.is_installed("agents.debates"):
        yield ScenarioProblem(("debate",), NO_DEBATES)
        return
    from agents.debates.modes import mode_of
    from agents.debates.starting import DebateRefused, checked_settings

    try:
        checked_settings(mode_of(debate.mode), debate.rounds, debate.settings)
    except DebateRefused as error:
        yield ScenarioProblem(("debate", "settings"), str(error))
    except ValueError as error:
        yield ScenarioProblem(("debate", "mode"), str(error))


def _swarm_problems(scenario: Mapping[str, Any]) -> Iterator[ScenarioProblem]:
    """Yield swarms that do not exist, and arms whose treatment is a swarm's stage where no agent has a swarm.

    One agent with an enabled swarm is enough. Where swarms are not installed, only a population that wants some is a problem here: stages
    that are not there are reported by `_stage_problems`.
    """
    swarms = _texts_in(scenario.get("population"), "swarms")
    if not apps.is_installed("agents.swarm"):
        if swarms:
            yield ScenarioProblem(("population", "swarms"), NO_SWARMS)
        return
    from agents.swarm.models import Swarm
    from agents.swarm.phases import default_swarm

    names = {default_swarm()["name"]}
    if swarms:
        names.update(Swarm.objects.values_list("name", flat=True))
    for number, name in enumerate(swarms):
        if name not in names:
            text = f"swarm {name!r:.80} is unknown; allowed: {', '.join(sorted(names))}"
            yield ScenarioProblem(("population", "swarms", number), text)
    cast = _texts_in(scenario, "cast")
    if swarms or Swarm.objects.filter(agents__slug__in=cast, enabled=True).exists():
        return
    for number, arm in enumerate(_list_in(scenario, "arms")):
        used = SWARM_STAGES.intersection(_texts_in(arm, "treatment"))
        if used:
            yield ScenarioProblem(
                ("arms", number, "treatment"),
                f"{', '.join(sorted(used))}: none of the agents has a swarm; allowed: a cast of agents with one "
                "(PATCH /api/swarms/{id}/), or a population with `swarms: [personality]`",
            )


def _list_in(data: Any, field: str) -> list[Any]:
    """Return a field that should be a list; empty where it is none."""
    value = data.get(field) if isinstance(data, Mapping) else None
    return value if isinstance(value, list) else []


def _texts_in(data: Any, field: str) -> list[str]:
    return [value for value in _list_in(data, field) if isinstance(value, str)]
