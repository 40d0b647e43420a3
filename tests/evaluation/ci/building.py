"""Two builds of one agent, and short ways to run `manage.py evaluate`."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.models import Agent
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, tail_of
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

MESSAGES = 12


def two_builds(propositions: PropositionFolder, slug: str = "ada") -> Agent:
    """An agent that says twelve things in build 40 and twelve in build 41, and two claims."""
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    agent = make_agent(slug)
    for build in ("40", "41"):
        talk(
            agent,
            [f"line {n} of build {build}" for n in range(MESSAGES)],
            channel=make_channel(f"{slug}-{build}"),
            tags={"build": build},
        )
    return agent


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and the last words on standard error."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("evaluate", *arguments, stdout=out, stderr=err)
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    return 0, out.getvalue(), err.getvalue()


def report(*arguments: str) -> dict[str, Any]:
    """What ``--json`` prints, with the exit code checked against it."""
    code, out, said = run("--json", *arguments)
    assert out, (code, said)
    result: dict[str, Any] = json.loads(out)
    assert result["summary"]["exit_code"] == code
    return result


def refused(*arguments: str) -> str:
    """What a command line is told that makes no sense."""
    code, out, said = run(*arguments)
    assert (code in (2, 3), out) == (True, ""), (code, out, said)
    return said


def baseline(*arguments: str) -> None:
    call_command("capture_baseline", "--no-simulate", "--json", "--where", "build=40", *arguments, stdout=io.StringIO())


def own_bot(propositions: PropositionFolder, *, rule: bool = False) -> Agent:
    """An agent that nobody wrote rules for: friendly in 28 messages of build 7, a stock assistant in 7 of 24 of build 8.

    `rule`: with one rule that all of them keep."""
    kept = '- {id: brief, claim: "{{agent_name}} is brief", rule: {max_words: 30}}' if rule else ""
    propositions.write(
        "adherence/_default.yaml",
        f"""
        dimension: adherence
        propositions:
          - {{id: kind, claim: "{{{{agent_name}}}} is kind"}}
          - {{id: warm, claim: "{{{{agent_name}}}} is warm"}}
          - {{id: stock, claim: "{{{{agent_name}}}} is a stock assistant", inverted: true, cues: {{supports: [dear customer, as an AI]}}}}
          {kept}
        """,
    )
    nora = make_agent("nora")
    friendly = [f"So good to hear from you, tell me about number {n}!" for n in range(45)]
    stock = [f"Dear customer, request {n} was received." for n in range(4)]
    stock += [f"As an AI language model, I cannot answer {n}." for n in range(3)]
    talk(nora, friendly[:28], channel=make_channel("nora-7"), tags={"build": "7"})
    talk(nora, [*friendly[28:], *stock], channel=make_channel("nora-8"), tags={"build": "8"})
    return nora


@pytest.fixture
def two(propositions: PropositionFolder) -> Agent:
    return two_builds(propositions)


def planted(server: LLMServer, *, mood: int, voice: int = 8) -> None:
    """Build 40 scores 8 throughout; in build 41 these are given, and line 7 scores least."""

    def respond(body: dict[str, object]) -> dict[str, object]:
        tail = tail_of(body)
        if "build 41" not in tail.rpartition("Claim")[0] and "of build 41" not in tail:
            return answers(lambda claim: 8)(body)
        less = 1 if "line 7 " in tail else 0
        return answers(lambda claim: max(0, (mood if "mood" in claim else voice) - less))(body)

    server.respond = respond


def half(server: LLMServer) -> None:
    """Every second call is refused service; the others find everything as bad as can be."""

    def respond(body: dict[str, object]) -> dict[str, object]:
        number = int(tail_of(body).split("line ")[1].split(" ")[0])
        if number % 2:
            return {"status": 500}
        return answers(lambda claim: 8 if "build 40" in tail_of(body) else 1)(body)

    server.respond = respond
