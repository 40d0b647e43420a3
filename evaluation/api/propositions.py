"""The propositions over HTTP, read from their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
        parameters = self.query
        agent = parameters["agent"]
        level = parameters["level"] or "evaluation"
        dimensions = [parameters["dimension"]] if parameters["dimension"] else [*Dimension.values]
        with reading_propositions():
            every_row = _merged_rows(agent, dimensions, level) if agent else _rows_by_file(dimensions, level)
            rows = list(every_row)
        if parameters["active"] is not None:
            rows = [row for row in rows if row.active is parameters["active"]]
        return self.get_paginated_response(self.paginate_queryset(rows))


def _merged_rows(agent: Agent, dimensions: list[str], level: str) -> Iterator[PropositionAnswer]:
    """Yield the propositions of an agent, the defaults merged in, then those that are not judged: of its own files and the defaults.

    Raises:
        PropositionError: A folder does not exist, or a file that this agent needs cannot be used.
    """
    files = load_all()
    for dimension in dimensions:
        for proposition in _asked(agent, dimension, level, files):
            yield _row(proposition, agent.slug, level)
    for file in applying(_files(dimensions, level), seeded=agent.seeded):
        if file.agent_id in (DEFAULT, agent.slug):
            for proposition in file.inactive:
                yield _row(proposition, agent.slug, level)


def _asked(agent: Agent, dimension: str, level: str, files: Sequence[LoadedFile]) -> Sequence[Proposition]:
    """Return the propositions that are judged of an agent; its traits have some at the level of evaluations."""
    if level == "evaluation":
        return propositions_asked(agent, dimension, files=files)
    return propositions_for(agent_slug=agent.slug, dimension=dimension, level=level, files=files, seeded=agent.seeded)


def _rows_by_file(dimensions: list[str], level: str) -> Iterator[PropositionAnswer]:
    """Yield the propositions of every file, one by one."""
    problems = file_problems()
    if problems:  # a list of every file leaves none out
        raise PropositionError(problems)
    for file in _files(dimensions, level):
        for proposition in (*file.propositions, *file.inactive):
            yield _row(proposition, _owner(file), level)


def _files(dimensions: list[str], level: str) -> list[LoadedFile]:
    files = [file for file in load_all() if file.level == level and file.dimension in dimensions]
    return sorted(files, key=lambda file: (dimensions.index(file.dimension), _owner(file) or ""))


def _owner(file: LoadedFile) -> str | None:
    """Return the slug of the agent that a file is about; None for the defaults."""
    return None if file.agent_id == DEFAULT else file.agent_id


def _row(proposition: Proposition, agent: str | None, level: str) -> PropositionAnswer:
    return PropositionAnswer.of(proposition, {"agent": agent, "level": level})
