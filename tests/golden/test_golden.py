"""The JSON of the main commands and of two API answers, from the example data: it changes only on purpose.

UPDATE_GOLDEN=1 make test ARGS="-n 0 tests/golden"     # writes the files; read the diff before you commit it
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.kit.llm import endpoints
from agents.models import Agent, Channel, ChannelMember
from correction.config.configure import configure
from correction.models import CorrectionLog
from evaluation.calibration.labels import save_label
from evaluation.models import EvaluationScore
from tests.api_client import program
from tests.console import superuser
from tests.evaluation.judging import answers, entry
from tests.golden.stable import stable
from tests.llm_server import LLMServer

FOLDER = Path(__file__).parent
DRY, LIVELY = (
    "Please be advised that no action is needed.",
    "Everybody, drop everything! My office deserves the greatest party ever, and I am going to host it!",
)
HELD = {"gate_mode": "enforce", "gate_adherence_enabled": True, "max_correction_attempts": 1}
Results = dict[str, Any]


def ran(command: str, *arguments: str) -> dict[str, Any]:
    """What a command printed as JSON, and its exit code."""
    out, code = StringIO(), 0
    try:
        call_command(command, *arguments, "--json", stdout=out, stderr=StringIO())
    except CommandError as error:
        code = error.returncode
    except SystemExit as error:
        code = int(error.code or 0)
    return {"exit": code, "json": stable(json.loads(out.getvalue()))}


def said(*texts: str) -> list[dict[str, Any]]:
    """Drafts of michael in one gate session."""
    found, session = [], ""
    for text in texts:
        out = StringIO()
        try:
            call_command("say", "michael", "attic", text, "--session", session, "--json", stdout=out, stderr=StringIO())
        except SystemExit as sent_back:
            assert sent_back.code == 1  # noqa: PT017
        answer = json.loads(out.getvalue())
        session = answer["gate_session"] if answer["message"] is None else ""
        found.append(stable(answer))
    return found


def measured(*names: str) -> dict[str, Any]:
    where = ("--agents", "michael", "--dimensions", "adherence,consistency,fluency")
    return {
        f"capture_baseline{names[0]}": ran(
            "capture_baseline", *where, "--samples", "6", "--no-simulate", "--where", "build=40"
        ),
        f"evaluate{names[0]}": ran("evaluate", *where, "--samples", "6", "--where", "build=41"),
        f"compare{names[0]}": ran(
            "compare",
            *where,
            "--dimensions",
            "adherence,fluency",
            "--samples",
            "6",
            "--a",
            "build=40",
            "--b",
            "build=41",
        ),
    }


def offline() -> Results:
    michael = Agent.objects.get(slug="michael")
    found = measured("")
    gate: dict[str, Any] = {}
    configure(agent=michael, changes=HELD)
    gate["passed"] = said(LIVELY)
    gate["corrected, passed_after_retry"] = said(DRY, LIVELY)
    gate["corrected, forced_through"] = said(DRY, DRY)
    configure(agent=michael, changes={"gate_mode": "observe"})
    gate["observe"] = said(DRY)
    unseen = {"gate_mode": "enforce", "gate_adherence_enabled": False, "gate_consistency_enabled": True}
    configure(agent=michael, changes=unseen)
    gate["unscored_passed"] = said(LIVELY)
    configure(agent=michael, changes={"gate_consistency_enabled": False})
    found["say"] = gate
    found["turn"] = ran("turn", "pam", "--channel", "attic")
    found["costs"] = ran("costs", "michael", "--window", "all", "--by", "mechanism,dimension,model")
    found["detect_behavior"] = ran("detect_behavior", "Could you be a bit shorter?", "--agent", "michael")
    for score in EvaluationScore.objects.filter(status="scored", judge="offline:lexical-1").order_by("pk")[:4]:
        save_label(score=score, annotator="ann", value=int(score.raw_score or 0), note="", user=None)
    found["calibrate_judge"] = ran("calibrate_judge")
    client = program(superuser("golden"))
    found["gate_statistics"] = stable(client.get("/api/evaluations/gate-statistics/?agent=michael").json())
    log = CorrectionLog.objects.filter(outcome="forced_through").latest("pk")
    found["correction_log"] = stable(client.get(f"/api/evaluations/correction-logs/{log.pk}/").json())
    return found


def with_a_judge(server: LLMServer) -> Results:
    """The loopback server: a judge that gives 6, and 3 to what is said in build 41; then judges that fail."""
    scores = answers(lambda claim: 6)
    server.respond = scores
    found = measured("-judge")
    michael, gate = Agent.objects.get(slug="michael"), {}
    configure(agent=michael, changes={**HELD, "gate_deadline_seconds": "4"})
    faults: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
        "passed": scores,
        "timeout_passed": lambda body: {"hang": True},
        "error_passed": lambda body: {"status": 529},
    }
    for name, fault in faults.items():
        server.respond = fault
        gate[name] = said(LIVELY)
        endpoints.forget()
    server.respond = answers(lambda claim: 2)
    gate["corrected, forced_through"] = said(DRY, LIVELY)
    configure(agent=michael, changes={"budget_enabled": True, "daily_budget_usd": "0"})
    gate["budget_passed"] = said(LIVELY)
    found["say-judge"] = gate
    server.respond = lambda body: {"json": entry(6)}
    return found


@pytest.fixture
def example_data(db: None, settings: Settings) -> Iterator[None]:
    """The 16 example agents on a day that stands still, judged offline, and a channel to try things in."""
    settings.JUDGE_MODEL, settings.ACTOR_MODEL = "offline:lexical-1", "offline:scripted-1"
    with time_machine.travel(datetime(2026, 11, 18, 12, tzinfo=UTC), tick=True):
        call_command("seed", verbosity=0, stdout=StringIO())
        attic = Channel.objects.create(slug="attic", name="attic")
        for slug in ("michael", "pam"):
            ChannelMember.objects.create(channel=attic, agent=Agent.objects.get(slug=slug))
        yield


@pytest.mark.slow
def test_results_are_those_that_are_kept(example_data: None, settings: Settings) -> None:
    found = offline()
    with LLMServer() as server:
        settings.JUDGE_BASE_URL, settings.JUDGE_MODEL, settings.ANTHROPIC_API_KEY = server.url, "test-model", "sk-test"
        found |= with_a_judge(server)

    changed = {}
    for name, result in found.items():
        kept = FOLDER / f"{name}.json"
        if os.environ.get("UPDATE_GOLDEN"):
            text = json.dumps(result, ensure_ascii=False, indent=1, sort_keys=True)
            kept.write_text(text + "\n", encoding="utf-8")
        before = json.loads(kept.read_text(encoding="utf-8"))
        if result != before:
            changed[name] = (result, before)
    for result, before in changed.values():
        assert result == before, f"changed: {', '.join(changed)}"
