"""``manage.py debate``: a debate played here, shown while it goes on, one round at a time or to its end."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.debates.measures import Exit
from agents.debates.models import Debate
from agents.debates.report import DebateReport, report
from agents.debates.request import DebateRequest
from agents.kit.use_cases import fields_of
from agents.models import Agent
from tests.agents.debates.finished import make_debate, says
from tests.agents.debates.refusals import GOOD, written
from tests.doors import typed
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def debate(*args: str) -> str:
    out = io.StringIO()
    call_command("debate", *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def refused(*args: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        debate(*args)
    return caught.value


def command_line(given: dict[str, Any]) -> list[str]:
    """The options that say the same as a request's body."""
    options = [(fields_of(DebateRequest)[name].option, value) for name, value in given.items() if name != "topic"]
    return [given["topic"], *(f"{option}={typed(value)}" for option, value in options)]


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ((), "say the question"),
        (("Should we move?", "--agents=ada,bob", "--model=claude"), "write SEAT=MODEL"),
        (("Should we move?", "--agents=ada,bob", "--markdown"), "only for the number of a debate"),
        (("77", "--next"), "there is no debate 77"),
        (("1", "--mode=delphi", "--no-poll"), "--mode, --no-poll: only for a new debate"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(people: list[Agent], args: tuple[str, ...], part: str) -> None:
    before = written()

    error = refused(*args)

    assert (error.returncode in (2, 3), written()) == (True, before)
    assert part in str(error)


def test_a_persona_without_sample_lines_is_named_before_anything_is_played_offline(people: list[Agent]) -> None:
    make_agent("mute", sample_lines=[])

    shown = debate("Should we move?", "--mode=delphi", "--agents=ada,mute", "--rounds=1")
    spoken = debate("Should we move?", "--mode=delphi", "--agents=ada,bob", "--rounds=1")

    before, _, _ = shown.partition("Poll:")
    assert "mute: no sample lines" in before
    assert "no sample lines" not in spoken


def test_next_plays_one_round_and_finish_the_rest(people: list[Agent]) -> None:
    off = {"consensus": "off", "confidence": "off", "convergence_rounds": "off"}

    first = debate(*command_line({**GOOD, "rounds": 4, **off}), "--next")
    played = Debate.objects.get()
    assert (played.status, played.rounds.count()) == ("waiting", 2)  # the poll and round 1
    assert f"manage.py debate {played.pk} --next" in first
    debate(str(played.pk), "--next")
    assert played.rounds.count() == 3
    before = written()
    assert "Round 3" not in debate(str(played.pk))  # only shows it
    assert written() == before
    debate(str(played.pk), "--finish")

    played.refresh_from_db()
    assert (played.status, played.rounds.count()) == ("completed", 5)
    assert refused(str(played.pk), "--next").returncode == 3


def test_json_is_the_report_and_nothing_else(people: list[Agent]) -> None:
    shown = debate(*command_line({**GOOD, "rounds": 1}), "--json")

    assert DebateReport.model_validate(json.loads(shown)) == report(Debate.objects.get())


def test_seats_play_with_their_model_role_and_perspective(people: list[Agent]) -> None:
    given = {**GOOD, "mode": "expert-panel", "perspectives": ["legal", "parking"], "rounds": 1}

    debate(*command_line({**given, "models": {"2": "offline:scripted"}}), "--no-poll", "--real")

    shown = report(Debate.objects.get())
    assert [(seat.perspective, seat.model) for seat in shown.metadata.seats] == [
        ("legal", ""),
        ("parking", "offline:scripted"),
        ("legal", ""),
    ]
    assert {one.round for one in shown.agent_responses} == {1}
    assert shown.metadata.real


def test_a_failed_debate_is_exit_1_and_says_why() -> None:
    failed = make_debate([["refused", "timeout"]], status="failed", error="no seat answered in the poll (\x1b[31mred)")

    error = refused(str(failed.pk))

    assert error.returncode == 1
    assert "no seat answered in the poll (" in str(error)
    assert "\x1b" not in str(error)
    assert debate(str(failed.pk), "--markdown").startswith("# Should the office move")


def test_ctrl_c_hands_the_debate_back_and_next_goes_on_with_it(people: list[Agent], settings: Settings) -> None:
    stages = settings.TURN_PIPELINE
    settings.TURN_PIPELINE = [*stages, "tests.agents.turn.stages.Interrupting"]

    error = refused(*command_line({**GOOD, "rounds": 2}), "--next")

    stopped = Debate.objects.get()
    assert (error.returncode, stopped.status) == (130, "pending")
    assert f"manage.py debate {stopped.pk} --next" in str(error)
    settings.TURN_PIPELINE = stages
    debate(str(stopped.pk), "--next")
    assert [one.status for one in report(stopped).agent_responses] == [
        "answered"
    ] * 6  # the poll and round 1, once each


def test_words_of_others_do_not_take_effect_in_the_terminal() -> None:
    words = "[bold]x[/bold] [red]\x1b[31mred\u202e [/]"
    sure = [says(n, "yes", 0.95, words) for n in (1, 2)]

    shown = debate(
        str(make_debate([sure, sure], topic=words, ended=Exit(ends=True, reason="consensus", details=words)).pk)
    )

    assert "[bold]x[/bold]" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "Warning: groupthink" in shown
