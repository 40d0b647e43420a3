"""Agents with a gate, drafts, and judges that answer by dimension: for tests of the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agents.models import Agent, Channel, ChannelMember, Run
from agents.turn.pipeline import Accept, Draft, SendResult, Turn
from agents.turn.send_message import send_message
from correction.models import AgentEvaluationConfig, CorrectionLog
from tests.evaluation.judging import entry, tail_of
from tests.factories import make_agent, make_channel

DIMENSIONS = ("adherence", "consistency", "fluency")
CLAIM_WORDS = {"persona specification": "adherence", "in line with": "consistency", "reads like": "fluency"}


def gated(
    *dimensions: str, slug: str = "ada", origin: str = "", channel: Channel | None = None, **config: Any
) -> tuple[Agent, Channel]:
    """An agent whose drafts are checked on these dimensions (default adherence), in a channel of which it is a member."""
    agent = make_agent(slug, origin=origin)
    configure(agent, *(dimensions or ("adherence",)), **config)
    return agent, join(agent, channel)


def configure(agent: Agent, *dimensions: str, **config: Any) -> None:
    fields = {f"gate_{d}_enabled": True for d in dimensions} | config
    AgentEvaluationConfig.objects.update_or_create(agent=agent, defaults=fields)


def join(agent: Agent, channel: Channel | None = None) -> Channel:
    channel = channel or Channel.objects.filter(slug="office").first() or make_channel()
    ChannelMember.objects.create(channel=channel, agent=agent)
    return channel


def send(agent: Agent, channel: Channel, text: str, **fields: Any) -> SendResult:
    return send_message(agent=agent, channel=channel, text=text, **fields)


def dimension_of(body: dict[str, Any]) -> str:
    """Which dimension a request to the judge is about."""
    claim = tail_of(body).rpartition("Claim: ")[2]
    return next(dimension for words, dimension in CLAIM_WORDS.items() if words in claim)


def judge(values: Mapping[str, Any] | Callable[[str, str], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A server that scores by dimension.

    Args:
        values: Dimension to its score, or a function of dimension and the draft's block. A dict instead of a number is the
            complete scripted reply (``{"status": 529}``).
    """

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        dimension = dimension_of(body)
        value = values(dimension, tail_of(body)) if callable(values) else values[dimension]
        if isinstance(value, dict):
            return value
        reasoning = f"{dimension} was looked at"
        answer = entry(value, reasoning=reasoning)
        if "flaws" in str(body.get("output_config", "")):
            answer["flaws"] = []
        return {"json": answer}

    return respond


def logs(**where: Any) -> list[CorrectionLog]:
    """The logged attempts, oldest first."""
    return list(CorrectionLog.objects.filter(**where).order_by("pk").prefetch_related("dimension_results"))


def outcomes(**where: Any) -> list[str]:
    return [log.outcome for log in logs(**where)]


def scores(log: CorrectionLog) -> dict[str, float | None]:
    return {r.dimension: r.score for r in log.dimension_results.all()}


class Polish:
    """A stage that rewrites drafts."""

    name = "polish"

    def review(self, turn: Turn, draft: Draft) -> Accept:
        return Accept(Draft(draft.text.upper(), draft.payload))


CONTROL = ("SAVEPOINT", "RELEASE", "ROLLBACK", "BEGIN", "COMMIT")


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements inside the block, without transaction control."""
    got: list[str] = []
    with CaptureQueriesContext(connection) as captured:
        yield got
    got += [q["sql"] for q in captured.captured_queries if not q["sql"].startswith(CONTROL)]


def team_file(settings: Settings, folder: Path, path: str, fields: str, *, level: str = "evaluation") -> None:
    """A proposition ``<agent>-own`` in a team's folder, with these further fields."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    agent = file.name.split(".")[0]
    personas = "false" if file.parent.name != "adherence" else "true"
    file.write_text(
        f"agent_id: {agent}\nlevel: {level}\ninclude_personas: {personas}\npropositions:\n  - id: {agent}-own\n"
        f'    claim: "{{{{agent_name}}}} keeps it short"\n    {fields}\n'
    )
    settings.PROPOSITION_DIRS = [folder]


def by_text(**values: Any) -> Any:
    """A judge that scores a draft by a word in it, whatever the dimension."""
    return judge(lambda dimension, tail: next(value for word, value in values.items() if word in tail))


def turn_of(agent: Agent, channel: Channel, run: Run | None = None) -> Turn:
    return Turn(agent=agent, channel=channel, run=run)
