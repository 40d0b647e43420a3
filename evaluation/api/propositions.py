"""The propositions over HTTP, read from their files."""

from __future__ import annotations

from collections.abc import Iterator

from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.filters import of_agent
from agents.kit.api import filters
from agents.kit.api.filters import Filters
from agents.kit.api.schema import answers
from agents.kit.api.views import View
from agents.models import Agent
from evaluation.api.answers import PropositionAnswer
from evaluation.api.requests import by_dimension, reading_propositions
from evaluation.models import Dimension, EvaluationScore
from evaluation.propositions.files import (
    DEFAULT,
    LoadedFile,
    PropositionError,
    applying,
    file_problems,
    load_all,
    propositions_for,
)
from evaluation.propositions.schema import Proposition
from evaluation.runs.planning import propositions_asked

LEVELS = ("evaluation", "action")


class PropositionFilters(Filters):
    agent = of_agent()
    dimension = by_dimension()
    level = filters.choice(LEVELS)
    active = filters.flag(about="false = suggestions, rejected and retired ones only")


class Propositions(View):
    """The propositions in effect, as their files say.

    Filters: dimension, level (`evaluation`, the default, or `action`: asked of a draft), agent (slug): the defaults merged with the
    agent's own and those of its traits (their `source` is `trait`), as an evaluation of it asks them. Without agent every file's stand
    one by one; `agent` is null in the defaults.
    What is not judged follows with `active` false: suggestions, rejected and retired ones. `active=true` leaves them out, `active=false`
    has nothing else.
    """

    queryset = EvaluationScore.objects.all()  # who may see what was judged may see what is asked
    filterset_class = PropositionFilters
    answer_class = PropositionAnswer

    @answers(PropositionAnswer, 409)
    def list(self, request: Request) -> Response:
        given = self.query
        agent, level = given["agent"], given["level"] or "evaluation"
        dimensions = [given["dimension"]] if given["dimension"] else [*Dimension.values]
        with reading_propositions():
            rows = [*(_merged(agent, dimensions, level) if agent else _by_file(dimensions, level))]
        if given["active"] is not None:
            rows = [row for row in rows if row.active is given["active"]]
        return self.get_paginated_response(self.paginate_queryset(rows))


def _merged(agent: Agent, dimensions: list[str], level: str) -> Iterator[PropositionAnswer]:
    files, seeded = load_all(), agent.seeded
    for dimension in dimensions:
        asked = (
            propositions_asked(agent, dimension, files=files)
            if level == "evaluation"
            else propositions_for(agent_slug=agent.slug, dimension=dimension, level=level, files=files, seeded=seeded)
        )
        yield from (_shown(proposition, agent.slug, level) for proposition in asked)
    for file in applying(_files(dimensions, level), seeded=seeded):
        if file.agent_id in (DEFAULT, agent.slug):
            yield from (_shown(suggestion, agent.slug, level) for suggestion in file.inactive)


def _by_file(dimensions: list[str], level: str) -> Iterator[PropositionAnswer]:
    if problems := file_problems():  # a list of every file leaves none out
        raise PropositionError(problems)
    for file in _files(dimensions, level):
        for proposition in (*file.propositions, *file.inactive):
            yield _shown(proposition, _owner(file), level)


def _files(dimensions: list[str], level: str) -> list[LoadedFile]:
    files = [file for file in load_all() if file.level == level and file.dimension in dimensions]
    return sorted(files, key=lambda file: (dimensions.index(file.dimension), _owner(file) or ""))


def _owner(file: LoadedFile) -> str | None:
    return None if file.agent_id == DEFAULT else file.agent_id


def _shown(proposition: Proposition, agent: str | None, level: str) -> PropositionAnswer:
    return PropositionAnswer.of(proposition, {"agent": agent, "level": level})
