"""`manage.py measure_behavior`: the estimate first, then what came out, and an exit code for scripts."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from correction.behavior.effects import queue_effect
from correction.models import BehaviorEffect, BehaviorRequest
from tests.correction.behavior.changed import LESS, MORE, Changed
from tests.correction.behavior.proposals import proposed
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def measure(row: BehaviorRequest | int, *options: str) -> tuple[int, str, str]:
    """Exit code, output, and what was complained of."""
    out = StringIO()
    pk = row if isinstance(row, int) else row.pk
    try:
        call_command("measure_behavior", str(pk), *options, stdout=out)
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    return 0, out.getvalue(), ""


@pytest.mark.parametrize(("asked", "word"), [(MORE, "more"), (LESS, "less")])
def test_a_request_that_was_followed_ends_with_0(changed: Changed, asked: dict[str, Any], word: str) -> None:
    row = changed(asked)
    code, out, said = measure(row)
    assert (code, said) == (0, "")
    assert "3 messages before, 3 after (not yet: 3 of 10 messages since); judge: test-model" in out
    assert "Estimate: 6 calls, unpriced" in out
    assert f"As requested: {word} of it was asked for, the agent does {word} of it since." in out
    assert "(95 % interval" in out
    assert "Cost: 6 calls, unpriced" in out
    effect = BehaviorEffect.objects.get()
    assert (effect.status, effect.judge, effect.lease_owner) == ("completed", "test-model", "")


def test_a_request_that_was_not_followed_ends_with_1(changed: Changed) -> None:
    row = changed(followed=False)
    code, out, said = measure(row, "--json")
    result = json.loads(out)
    assert (code, result["as_requested"], result["status"]) == (1, False, "completed")
    assert said == "emoji use: more of it was asked for; the verdict is no change shown"


def test_a_trait_s_name_takes_no_effect_in_the_terminal(changed: Changed) -> None:
    row = changed(followed=False)
    row.trait_after["name"] = "emoji\x1b[2J use"  # type: ignore[index]
    row.save()

    code, out, said = measure(row)

    assert (code, "\x1b" in out + said) == (1, False)
    assert said.startswith("emoji<U+001B>[2J use: ")


def test_what_cannot_be_told_ends_with_2(changed: Changed, llm_server: LLMServer) -> None:
    row = changed()
    code, out, said = measure(row, "--model", "offline:lexical-1")
    assert code == 2
    assert "the judge scored none of 6 messages" in said
    assert "judge: offline:lexical-1 (heuristic)" in out
    assert "Estimate: no paid call" in out
    assert "6 messages could not be scored; the first: needs an LLM judge" in out
    assert llm_server.calls == 0
    one = measure(row, "--messages", "1")
    assert (one[0], "it is not known" in one[2]) == (2, True)


def test_no_message_since_ends_with_2_and_asks_nothing(changed: Changed, llm_server: LLMServer) -> None:
    row = changed(since=0)
    code, out, said = measure(row, "--json")
    assert (code, json.loads(out)["after"]) == (2, 0)
    assert "not yet: 0 of 10 messages since" in said
    assert (llm_server.calls, BehaviorEffect.objects.count()) == (0, 0)


def test_a_dry_run_asks_nothing_and_keeps_nothing(changed: Changed, llm_server: LLMServer) -> None:
    row = changed()
    code, out, _ = measure(row, "--dry-run", "--messages", "2")
    assert (code, "Estimate: 4 calls, unpriced" in out) == (0, True)
    code, out, _ = measure(row, "--dry-run", "--json")
    assert (code, json.loads(out)["estimate"]["calls"]) == (0, 6)
    assert (llm_server.calls, BehaviorEffect.objects.count()) == (0, 0)


def test_wrong_usage_ends_with_3(changed: Changed, llm_server: LLMServer) -> None:
    row = changed()
    never = proposed(make_agent("bob"))
    for wrong, options, shown in (
        (999_999, (), "there is no behaviour request 999999"),
        (10**30, (), "there is no behaviour request"),
        (never, (), "allowed: a request that was applied"),
        (row, ("--messages", "0"), "allowed: 1 to 100"),
        (row, ("--messages", "x"), "invalid int value"),
        (row, ("--model", "m" * 201), "at most 200"),
    ):
        code, _, said = measure(wrong, *options)
        assert (code, shown in said) == (3, True), said
    queue_effect(request=row)
    code, _, said = measure(row)
    assert (code, "under way already" in said) == (3, True)
    assert llm_server.calls == 0
