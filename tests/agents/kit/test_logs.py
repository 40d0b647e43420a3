"""The log and Sentry say what happened where; what agents and users wrote stays in the database."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest
import sentry_sdk
from django.conf import settings
from django.db import DataError, IntegrityError
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from agents.kit.ops.telemetry import HIDDEN, About, Json, Plain, logging_about, scrub_event, scrub_transaction, spoken
from tests.tracing import Caught

SECRET = "Zebras never apologise"


def record(message: str = "it happened", *args: object, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.LogRecord("agents.turn", logging.ERROR, __file__, 1, message, args, exc_info)
    About().filter(made)
    return made


def crash(error: Exception) -> Exception:
    """The error as a crash inside another one leaves it."""
    try:
        try:
            raise error
        except Exception as inner:
            raise RuntimeError(f"while saying {SECRET}") from inner
    except RuntimeError as outer:
        return outer


def test_a_json_line_carries_the_ids_of_request_run_and_agent() -> None:
    with logging_about(request_id="r-1", agent=7, run=None), logging_about(run=12):
        line = json.loads(Json().format(record("said %s", "hello")))

    assert (line["request_id"], line["run"], line["agent"]) == ("r-1", 12, 7)
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "agents.turn", "said hello")
    assert "about" not in line
    assert "run" not in json.loads(Json().format(record()))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])
    with logging_about(run=12, agent=7):
        assert Plain().format(record()).endswith("agents.turn it happened run=12 agent=7")


def test_the_shipped_settings_write_each_line_once_and_without_texts() -> None:
    logging_settings: Any = settings.LOGGING

    assert not any(logger.get("handlers") for logger in logging_settings["loggers"].values()), (
        "Django's own write it again"
    )
    assert logging_settings["handlers"]["console"]["filters"] == ["about"]
    assert (settings.SENTRY_SEND_TEXTS, settings.LOG_TEXTS) == (False, False)


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/metrics", "/api/evaluations/", "/api/nowhere/"])
def test_what_django_says_of_a_refused_request_carries_its_id(
    path: str, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.METRICS_TOKEN = "a-token"
    caplog.handler.addFilter(About())

    Client().get(path, secure=True, headers={"X-Request-ID": "from-the-caller-7"})

    lines = [line for line in caplog.records if line.name == "django.request"]
    assert [getattr(line, "request_id", None) for line in lines] == ["from-the-caller-7"]


def test_a_name_that_is_not_ours_is_one_line_and_no_error(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    settings.SECURE_SSL_REDIRECT = True  # as shipped; the browser's tests switch it off for as long as they run

    Client().get("/admin/login/", headers={"Host": "evil.example.com"})

    [line] = [line for line in caplog.records if line.name == "django.security.DisallowedHost"]
    assert (line.levelname, line.exc_info) == ("WARNING", None)
    assert "evil.example.com" in line.getMessage()


@pytest.mark.parametrize("form", [Json, Plain])
def test_a_traceback_says_where_and_of_which_kind_but_quotes_nobody(form: Any) -> None:
    broken = record(error=crash(ValueError(SECRET)))

    line = form().format(broken)

    assert SECRET not in line
    assert "ValueError" in line
    assert "RuntimeError" in line
    assert "test_logs.py" in line
    assert HIDDEN in line
    assert SECRET in form(texts=True).format(broken)


def test_an_error_in_a_line_s_arguments_is_named_and_not_quoted() -> None:
    line = Plain().format(record("its effect failed: %s", KeyError(SECRET)))

    assert SECRET not in line
    assert "its effect failed: KeyError" in line


def test_one_handler_s_hidden_traceback_does_not_change_what_another_prints() -> None:
    broken = record(error=crash(ValueError(SECRET)))
    Plain().format(broken)

    assert SECRET in logging.Formatter().format(broken)


def test_of_database_errors_only_the_line_that_quotes_no_row_is_said() -> None:
    error = IntegrityError(f"duplicate key violates unique constraint x\nDETAIL: Key (text)=({SECRET}) exists.")

    assert spoken(error) == "duplicate key violates unique constraint x"
    assert spoken(DataError(f"value too long\nLINE 1: {SECRET}")) == "value too long"
    assert spoken(FileNotFoundError(2, "No such file or directory")) == "[Errno 2] No such file or directory"
    assert spoken(UnicodeEncodeError("utf-8", SECRET, 0, 1, "surrogates")) == HIDDEN


@given(st.text(min_size=12))
def test_no_text_gets_through_an_exception_group_or_its_notes(text: str) -> None:
    group = ExceptionGroup("several", [ValueError(f"<{text}>"), crash(KeyError(f"<{text}>"))])
    group.add_note(f"<{text}>")

    assert f"<{text}>" not in Plain().format(record(error=group))


def test_sentry_is_told_an_errors_kind_place_and_ids_but_no_text() -> None:
    caught = Caught()
    client = sentry_sdk.Client(
        dsn="http://key@127.0.0.1:9/1", transport=caught, before_send=scrub_event,
        before_send_transaction=scrub_transaction, include_local_variables=True, default_integrations=False,
    )  # fmt: skip
    with sentry_sdk.isolation_scope() as scope, logging_about(run=12):
        scope.set_client(client)
        scope.set_extra("draft", SECRET)
        sentry_sdk.add_breadcrumb(message=SECRET)
        draft = SECRET
        try:
            raise ValueError(f"cannot say {draft}")
        except ValueError as error:
            sentry_sdk.capture_exception(crash(error))
    client.close()

    (event,) = caught.of_type("event")
    assert SECRET not in caught.text
    assert [value["type"] for value in event["exception"]["values"]] == ["ValueError", "RuntimeError"]
    assert event["tags"]["run"] == "12"
    assert event["exception"]["values"][0]["stacktrace"]["frames"]
