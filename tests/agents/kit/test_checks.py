"""What ``manage.py check`` says about the settings for models, and what it tells people to do."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import WARNING, CheckMessage, run_checks
from pytest_django import Settings

from tests import zygote


@pytest.fixture(autouse=True)
def sound(settings: Settings) -> None:
    """Settings about which there is nothing to say."""
    settings.ANTHROPIC_API_KEY = "sk-test"
    settings.JUDGE_BASE_URL = settings.ACTOR_BASE_URL = ""
    settings.JUDGE_MODEL = settings.ACTOR_MODEL = "claude-haiku-5-5"
    settings.LLM_STORE_PAYLOADS = "none"
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 20, 4
    settings.PRODUCTION = False
    settings.CELERY_BROKER_URL = ""


def found(*, deploy: bool = False) -> dict[str, CheckMessage]:
    """The messages of this app by id."""
    return {
        message.id: message
        for message in run_checks(include_deployment_checks=deploy)
        if message.id and message.id.startswith("agents.")
    }


def test_sound_settings_give_no_message() -> None:
    assert found() == {}


def test_an_offline_judge_is_told_but_no_fault(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.ACTOR_MODEL = "offline:lexical-1", "offline:scripted-1"

    message = found(deploy=True)["agents.I001"]

    assert found() == {}, "not on every command"
    assert not message.is_serious()
    assert "ANTHROPIC_API_KEY" in str(message.hint)


@pytest.mark.parametrize("role", ["JUDGE", "ACTOR"])
def test_a_model_without_key_or_server_is_an_error(settings: Settings, role: str) -> None:
    settings.ANTHROPIC_API_KEY = ""
    setattr(settings, "ACTOR_MODEL" if role == "JUDGE" else "JUDGE_MODEL", "offline:any")

    message = found()["agents.E001"]

    assert message.msg == f"{role}_MODEL cannot be called."
    for name in ("ANTHROPIC_API_KEY", f"{role}_BASE_URL", f"{role}_MODEL=offline:"):
        assert name in str(message.hint)
    setattr(settings, f"{role}_BASE_URL", "http://localhost:8080")
    assert "agents.E001" not in found(), "a server of one's own needs no key"


def test_a_replay_needs_its_file(settings: Settings, tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    settings.JUDGE_MODEL = f"replay:{answers}"
    assert str(answers) in found()["agents.E002"].msg

    answers.touch()
    assert found() == {}


@pytest.mark.parametrize(("value", "wrong"), [("judge", False), ("yes", True)])
def test_payloads_are_stored_by_a_known_choice(settings: Settings, value: str, wrong: bool) -> None:
    settings.LLM_STORE_PAYLOADS = value

    assert ("agents.E003" in found()) is wrong


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("LLM_MAX_CONCURRENCY", 0, "1 or more"),
        ("LLM_GATE_SLOTS", -1, "0 or more"),
        ("TURN_STEP_DEADLINE", 0, "1 or more"),
        ("SWARM_WINDOW", 9, "10 to 15"),
        ("SWARM_WINDOW", 16, "10 to 15"),
    ],
)
def test_a_number_out_of_its_range_is_an_error(settings: Settings, name: str, value: int, allowed: str) -> None:
    setattr(settings, name, value)

    message = found()["agents.E004"]

    assert message.msg == f"{name} is {value}."
    assert f"Set it to {allowed}" in str(message.hint)


def test_a_stage_of_an_app_that_is_not_installed_is_an_error(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TURN_PIPELINE = ["agents.debates.stages.Mode"]
    monkeypatch.setattr(
        apps, "get_containing_app_config", lambda path: apps.get_app_config("agents")
    )  # as without debates

    message = found()["agents.E006"]

    assert "part of agents.debates: that app is not in INSTALLED_APPS" in message.msg


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("correction.stages.ActionGat", "cannot be loaded: ImportError"),
        ("agents.kit.llm.Label", "cannot be loaded: TypeError"),
        ("collections.OrderedDict", "has none of the methods of a stage"),
    ],
)
def test_a_stage_that_is_none_is_an_error(settings: Settings, path: str, complaint: str) -> None:
    settings.TURN_PIPELINE = [path]

    message = found()["agents.E006"]

    assert f"TURN_PIPELINE names {path!r}, which {complaint}" in message.msg
    assert "received, prepare, review, committed, finish" in str(message.hint)


@pytest.mark.parametrize(
    ("model", "unpriced"),
    [
        ("claude-haiku-4-5-20251001", False),
        ("offline:lexical-1", False),
        ("smollm2", True),
    ],
)
def test_a_model_without_a_price_is_warned_about(settings: Settings, model: str, unpriced: bool) -> None:
    settings.ACTOR_MODEL = model

    assert ("agents.W002" in found()) is unpriced


@pytest.mark.slow
def test_an_own_model_is_warned_about_once_until_that_is_switched_off(tmp_path: Path) -> None:
    """What a user of an own model sees before any command."""

    def seen(**environment: str) -> str:
        ours = {
            "JUDGE_BASE_URL": "http://localhost:9",
            "ACTOR_BASE_URL": "http://localhost:9",
            "JUDGE_MODEL": "smollm2",
        }
        run = zygote.run(
            [sys.executable, "manage.py", "migrate", "--plan"],
            cwd=django_settings.BASE_DIR,
            env=os.environ
            | ours
            | {"ACTOR_MODEL": "smollm2", "DATABASE_URL": f"sqlite:///{tmp_path}/db"}
            | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return run.stderr

    warned = seen()
    assert warned.count("(agents.W002)") == 1
    (switch,) = re.findall(r"SILENCED_SYSTEM_CHECKS=\S+\w", warned)
    assert "W002" not in seen(SILENCED_SYSTEM_CHECKS=switch.partition("=")[2])
    assert "W002" not in seen(SILENCED_SYSTEM_CHECKS="agents.W001, agents.W002")


def test_what_production_lacks_is_warned_about_only_when_asked(settings: Settings) -> None:
    settings.NOT_SET = ["SECRET_KEY", "DATABASE_URL"]
    settings.ALLOWED_HOSTS = ["localhost"]

    messages = found(deploy=True)

    assert [messages[id].level for id in ("agents.W003", "agents.W004", "agents.W005")] == [WARNING] * 3
    assert "token_urlsafe" in str(messages["agents.W003"].hint)
    assert "ALLOWED_HOSTS names localhost" in messages["agents.W004"].msg
    assert "postgres://" in str(messages["agents.W005"].hint)
    assert found() == {}, "not on every command"


def test_a_proxy_that_ends_tls_needs_a_setting(settings: Settings) -> None:
    settings.NOT_SET, settings.PRODUCTION = [], True
    settings.SECURE_SSL_REDIRECT, settings.SECURE_PROXY_SSL_HEADER = True, None

    messages = found(deploy=True)

    assert list(messages) == ["agents.I005"]
    assert not messages["agents.I005"].is_serious()


def test_production_that_has_all_is_not_told_anything(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.NOT_SET, settings.PRODUCTION, settings.METRICS_TOKEN = [], True, "a-token"
    settings.CELERY_BROKER_URL = "redis://localhost:6379/0"
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.postgresql")
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

    assert found(deploy=True) == {}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"DEBUG": True, "ALLOWED_HOSTS": ["*"]}, {"agents.W006"}),
        ({"DEBUG": True, "ALLOWED_HOSTS": ["localhost", "127.0.0.1"], "SECRET_KEY": "short"}, set()),
        ({"ALLOWED_HOSTS": ["plumbline.example.org"], "SECRET_KEY": "short"}, {"agents.W007"}),
        ({"ALLOWED_HOSTS": ["plumbline.example.org"], "SECRET_KEY": "k" * 50}, set()),
    ],
)
def test_what_gives_a_public_server_away_is_a_warning(
    settings: Settings, changed: dict[str, object], expected: set[str]
) -> None:
    settings.DEBUG, settings.NOT_SET = False, []
    settings.SECRET_KEY = "k" * 50
    for name, value in changed.items():
        setattr(settings, name, value)

    assert set(found()) == expected
