"""Four agents in three conversations, and a judge that tells the conversations apart."""

from __future__ import annotations

from typing import Any

from agents.models import Agent
from evaluation.runs.execute import capture
from evaluation.runs.spec import RunSpec
from tests.evaluation.conversing import DRY, LEARNED, LOUD, converse, in_turn
from tests.evaluation.judging import answers, prompt_of
from tests.factories import make_channel
from tests.llm_server import LLMServer

ALL_FIVE = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")


def judge(body: dict[str, Any]) -> dict[str, Any]:
    """Claims of #one score 8, of #two 2, of agents 6; two ideas in each conversation."""
    prompt = prompt_of(body)
    if "<<<IDEAS" in prompt:
        return {"json": {"same": []}}
    if "What to list" in prompt:
        found = [{"idea": name, "description": "", "entries": [1]} for name in ("a pond", "a boat")]
        return {"json": {"ideas": found}}
    return answers(lambda claim: 8 if "#one" in claim else 2 if "#two" in claim else 6)(
        {**body, "messages": [{**body["messages"][-1]}]}
    )


def gather(llm_server: LLMServer) -> dict[str, Agent]:
    """Ada and Bea talk in #one; Ada, a third as often, in #two with Cyd; Dov has a diary."""
    llm_server.respond = lambda body: (
        judge(body) if "agree with each other readily" not in prompt_of(body) else _environment(body)
    )
    converse(make_channel("one"), in_turn(DRY, LOUD))
    converse(make_channel("two"), [("ada", "Hello."), ("cyd", LEARNED[0]), ("cyd", LEARNED[1])])
    converse(make_channel("diary"), [("dov", text) for text in DRY])
    return {agent.slug: agent for agent in Agent.objects.all()}


def _environment(body: dict[str, Any]) -> dict[str, Any]:
    """An inverted claim scores so that it comes out like the others."""
    one = "#one" in prompt_of(body)
    return answers(lambda claim: (1 if one else 7) if "readily" in claim else (8 if one else 2))(body)


def captured(agents: list[Agent], *dimensions: str) -> list[Any]:
    specs = [RunSpec(agent=agent, dimensions=dimensions or ALL_FIVE, is_baseline=True) for agent in agents]
    return capture(specs)
