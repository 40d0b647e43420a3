"""The shipped data, build 40 against build 41, with the offline judge: planted drift fails the build, and no other agent is accused."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django.plugin import DjangoDbBlocker

from agents.models import Agent
from agents.seed import loader
from tests.evaluation.ci.building import report, run
from tests.factories import make_channel, talk
from tests.once import rows_for_all

pytestmark = [pytest.mark.django_db, pytest.mark.usual_minimum, pytest.mark.slow]
LOSE_THEIR_VOICE = {"michael", "dwight", "angela", "stanley", "kevin"}
ASKED = ("--dimensions", "adherence,fluency", "--samples", "100")
# Nothing that a persona of an office would say, and nothing that breaks a rule of theirs either.
OFF_TOPIC = [
    "Preheat the oven to 200 degrees and grease a baking tin.",
    "Fold the egg whites into the batter in two steps.",
    "Simmer the lentils for twenty minutes until soft.",
    "Shares of the copper producer closed at 41.20, up 0.3 on the day.",
    "The index opened lower after bond yields rose overnight.",
    "Rinse the rice until the water runs clear.",
    "Chill the dough for an hour before rolling.",
    "Futures for wheat settled at 612 cents a bushel.",
    "Season with salt and pepper and serve with bread.",
    "Volume on the exchange was thin ahead of the holiday.",
    "Whisk oil and vinegar with mustard.",
    "The yield on the ten-year note stood at 4.1.",
    "Roast the carrots with cumin.",
    "The dollar was steady against the yen.",
]


@pytest.fixture(scope="module", autouse=True)
def _seeded(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    baseline = ("capture_baseline", "--no-simulate", "--json", "--where", "build=40", *ASKED)
    with rows_for_all(django_db_blocker, JUDGE_MODEL="offline:lexical-1", PROPOSITION_DIRS=[], WORKER_THREADS=1):
        loader.seed()
        call_command(*baseline, stdout=io.StringIO())
        yield


def test_build_41_fails_only_for_those_who_lose_their_voice() -> None:
    document = report("--where", "build=41", *ASKED, "--threshold", "fluency=5")

    assert document["summary"]["verdict"] == "regression"
    assert {entry["agent"] for entry in document["regressions"]} == LOSE_THEIR_VOICE | {"jim"}
    assert {entry["agent"] for entry in document["below_threshold"]} == {"jim"}, "who repeats himself"
    for entry in document["regressions"]:
        claim = entry["proposition"] or entry["fell_most"][0]["proposition"]
        assert claim.startswith("fluency" if entry["agent"] == "jim" else entry["agent"])
        assert entry["interval"][1] < 0, "what is called a regression is sure"
        assert entry["worst_message"]["text"]
        assert entry["agent"] == "jim" or entry["worst_message"]["position"] is not None
    assert document["summary"]["heuristic"] is True
    assert document["not_enough_data"] == [] or {e["agent"] for e in document["not_enough_data"]} <= LOSE_THEIR_VOICE


@pytest.mark.parametrize("slug", ["jim", "toby"])
def test_who_says_nothing_of_their_own_any_more_does_not_pass(slug: str, tmp_path: Path) -> None:
    talk(Agent.objects.get(slug=slug), OFF_TOPIC, channel=make_channel("off"), tags={"build": "42"})
    result = tmp_path / "result.json"

    code, out, said = run("--agents", slug, "--where", "build=42", *ASKED, "--out", str(result))
    document = json.loads(result.read_text(encoding="utf-8"))

    adherence = document["runs"][0]["dimensions"]["adherence"]
    assert (document["summary"]["verdict"], document["summary"]["exit_code"]) == ("not enough data", 2)
    assert adherence["score"] is None, "the rules that hold for any text are no score"
    assert "a score needs 15 %" in adherence["reason"]
    assert document["runs"][0]["overall_score"] is None, "the mean of what is left would be a rise"
    assert 0 < adherence["coverage"] < 0.15
    assert code == 2
    assert "not enough data" in said
    assert document["not_enough_data"]
    for entry in document["not_enough_data"]:  # named with both shares
        assert entry["coverage"] < entry["baseline_coverage"]
        assert entry["why"].removeprefix("not enough data: ") in " ".join(out.split())
