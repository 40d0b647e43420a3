"""A message of a chat becomes a test for a build: a file that asks the same again, and fails where an answer breaks the rule."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from django.urls import reverse

from agents.chat import begin_chat
from agents.models import Agent, Channel, Message
from evaluation.ci.from_chat import NothingAsked, build_test
from evaluation.simulation.situations import MOST_LINES
from tests.console import HOSTILE, page_of, plain, read, signed_in, staff, superuser
from tests.evaluation.ci.test_elsewhere import environment
from tests.evaluation.ci.test_files import ROOT
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
READING = ("agents.view_agent", "agents.view_channel", "agents.view_message")
TRICKY = 'He said """stop""" \\ {agent} \u202e\x85 '


@pytest.fixture
def ada() -> Agent:
    return make_agent(sample_lines=["Noted.", "Filed under B."])


@pytest.fixture
def chat(ada: Agent) -> Channel:
    return begin_chat(ada)


def say(chat: Channel, text: str, agent: Agent | None = None) -> Message:
    position = chat.next_position
    Channel.objects.filter(pk=chat.pk).update(next_position=position + 1)
    chat.refresh_from_db()
    outsider = "" if agent else "you"
    message: Message = Message.objects.create(
        channel=chat, position=position, agent=agent, outsider=outsider, text=text, synthetic=True
    )
    return message


def asked_in(code: str) -> list[str]:
    """What the test asks, read as Python reads it."""
    for node in ast.parse(code).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "ASKED":
            return list(ast.literal_eval(node.value))
    raise AssertionError("it asks nothing")


def test_it_asks_what_people_said_before_the_message_in_order(ada: Agent, chat: Channel) -> None:
    say(chat, "Good morning.")
    say(chat, "Noted.", ada)
    say(chat, TRICKY)
    answer = say(chat, HOSTILE, ada)
    say(chat, "And afterwards?")
    test = build_test(agent=ada, message=answer, never=["sorry"], says=[])
    assert asked_in(test.code) == ["Good morning.", TRICKY.strip()]
    assert (test.asked, test.left_out, test.shortened) == (2, 0, 0)
    assert [node.name for node in ast.parse(test.code).body if isinstance(node, ast.FunctionDef)] == [
        test.file_name.removesuffix(".py")
    ]  # nothing of what was said is code


def test_a_long_chat_is_asked_from_its_last_twenty_questions(ada: Agent, chat: Channel) -> None:
    for number in range(MOST_LINES + 3):
        say(chat, f"Question {number}")
    test = build_test(agent=ada, message=say(chat, "Noted.", ada), never=[], says=[])
    assert asked_in(test.code)[0] == "Question 3"
    assert (test.asked, test.left_out) == (MOST_LINES, 3)


def test_a_message_before_any_question_makes_no_test(ada: Agent, chat: Channel) -> None:
    greeting = say(chat, "Good morning.", ada)
    with pytest.raises(NothingAsked):
        build_test(agent=ada, message=greeting, never=[], says=[])
    page = read(signed_in(superuser()), reverse("admin:evaluation_ci_test", args=[greeting.pk]))
    assert "No test" in plain(page)


def test_the_page_shows_the_test_to_copy_and_to_download(ada: Agent, chat: Channel) -> None:
    say(chat, HOSTILE)
    message = say(chat, "Noted.", ada)
    client = signed_in(staff(*READING))
    chat_page = read(client, page_of(chat, "chat"))
    url = reverse("admin:evaluation_ci_test", args=[message.pk])
    assert f'href="{url}"' in chat_page
    html = read(client, f"{url}?never=sorry, excuse me")
    assert "&#x27;contains_none&#x27;: [&#x27;sorry&#x27;, &#x27;excuse me&#x27;]" in html
    assert HOSTILE not in html
    file = client.get(f"{url}?never=sorry&download=1")
    assert file["Content-Disposition"].startswith("attachment; filename=")
    assert asked_in(file.content.decode()) == [HOSTILE.strip()]


def test_phrases_are_typed_as_in_a_rule_and_a_broken_pattern_makes_no_test(ada: Agent, chat: Channel) -> None:
    say(chat, "Hello")
    message = say(chat, "Noted.", ada)
    client = signed_in(superuser())
    url = reverse("admin:evaluation_ci_test", args=[message.pk])
    quoted = client.get(url, {"never": '"sorry, Sir"', "download": "1"}).content.decode()
    broken = plain(client.get(url, {"never": "/(/"}).content.decode())
    assert "['sorry, Sir']" in quoted
    assert "in_character" not in broken
    assert "/(/" in broken


def test_only_who_may_read_conversations_gets_a_test_and_only_of_what_agents_said(ada: Agent, chat: Channel) -> None:
    question = say(chat, "Hello")
    message = say(chat, "Noted.", ada)
    url = reverse("admin:evaluation_ci_test", args=[message.pk])
    assert signed_in(staff(*READING[:2])).get(url).status_code == 403
    of_question = reverse("admin:evaluation_ci_test", args=[question.pk])
    html = plain(read(signed_in(superuser()), of_question))
    assert "No test" in html
    assert "in_character" not in html


@pytest.mark.slow
@pytest.mark.parametrize(("never", "code"), [("sorry", 0), ("Filed", 1)])
def test_the_file_runs_under_pytest_and_fails_where_an_answer_breaks_the_rule(
    never: str, code: int, ada: Agent, chat: Channel, tmp_path: Path
) -> None:
    say(chat, "Where is my file?")
    say(chat, "Noted.", ada)
    say(chat, TRICKY)
    test = build_test(agent=ada, message=say(chat, "Filed under B.", ada), never=[never], says=[])
    (tmp_path / test.file_name).write_text(test.code, encoding="utf-8")
    (tmp_path / "personas").mkdir()
    persona = {"slug": "ada", "display_name": "Ada", "system_prompt": "You are Ada.", "sample_lines": ada.sample_lines}
    (tmp_path / "personas" / "ada.yaml").write_text(yaml.safe_dump(persona))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", test.file_name],
        cwd=tmp_path, env=environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert ("breaks the rule" in done.stdout) is bool(code)
