"""`manage.py say`: a draft from a terminal, checked and said as an agent's own would be."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.correction.gating import DIMENSIONS, gated, join, judge, logs
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and standard output."""
    out = io.StringIO()
    try:
        call_command("say", *arguments, stdout=out)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    except CommandError as error:
        return error.returncode, str(error)
    return 0, out.getvalue()


def run_json(*arguments: str) -> tuple[int, dict[str, Any]]:
    code, out = run(*arguments, "--json")
    return code, json.loads(out)


def test_what_is_forced_through_shows_the_text_that_was_said(llm_server: LLMServer) -> None:
    gated("fluency", max_correction_attempts=1)
    llm_server.respond = judge(lambda d, tail: 4 if "one" in tail else 1)
    _, first = run_json("ada", "office", "one")
    code, out = run("ada", "office", "two", "--session", first["gate_session"])
    assert code == 0
    assert "forced through (best attempt sent) (attempt 2, said was attempt 1" in out
    assert "Said: one" in out


def test_people_get_a_table_the_feedback_and_how_to_go_on(llm_server: LLMServer) -> None:
    gated(*DIMENSIONS)
    llm_server.respond = judge({"adherence": 2, "consistency": 7, "fluency": 9})
    code, out = run("ada", "office", "I filed [it].")
    assert code == 1
    for words in ("sent back with feedback", "adherence", "FAILED", "passed", "> I filed [it].", "Next attempt:"):
        assert words in out
    assert f"--session {logs()[0].session.uuid}" in out


def test_without_a_gate_it_is_simply_said(llm_server: LLMServer) -> None:
    join(make_agent())
    code, got = run_json("ada", "office", "Hello.")
    assert (code, got["outcome"], got["gate_session"], got["attempt"], got["dimensions"]) == (
        0, "sent", None, None, {},
    )  # fmt: skip
    assert "No gate looked at it" in run("ada", "office", "Hello again.")[1]
    assert llm_server.calls == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nobody", "office", "x"), "there is no agent 'nobody'; agents: ada"),
        (("ada", "nowhere", "x"), "there is no channel 'nowhere'; channels: office"),
        (("ada", "office", "x", "--session", "y"), "'y' is not a session id"),
    ],
)
def test_bad_input_is_named_and_ends_with_3(llm_server: LLMServer, arguments: tuple[str, ...], words: str) -> None:
    gated("fluency")
    code, out = run(*arguments)
    assert code == 3
    assert words in out
    assert logs() == []
