"""Command lines that make no sense are refused, before anything is asked, and say what is allowed."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest

from agents.models import Agent
from evaluation.ci.limits import ALL_DIMENSIONS, Limits, parse_thresholds
from tests.evaluation.ci.building import baseline, planted, refused, run, two_builds
from tests.evaluation.conftest import PropositionFolder
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--threshold 12", "a number from 0 to 9"),
        ("--threshold fluency=4 --dimensions adherence", "not among the dimensions measured"),
        ("--regression-delta 0", "--regression-delta 0: allowed: above 0"),
        ("--max-unscored 2", "allowed: 0 to 1"),
        ("--by position --dimensions consistency", "--by position needs one of adherence"),
        ("--by position --baseline b.json", "not with a --baseline"),
        ("--personas p", "--personas needs --transcript"),
        ("--personas p --transcript t --simulate s", "not both"),
        ("--propositions no-such", "no such folder"),
        ("--map a=b", "--map is for --transcript"),
        ("--personas p --transcript t --map ada", "--map 'ada': write it as SPEAKER=SLUG"),
        ("--dry-run --junit x.xml", "nothing to write"),
        ("--junit /no/such/folder/x.xml", "--junit /no/such/folder/x.xml"),
    ],
)
def test_wrong_usage_is_refused_and_asks_nothing(two: Agent, llm_server: LLMServer, arguments: str, said: str) -> None:
    assert said in refused(*arguments.split())
    assert llm_server.calls == 0


@pytest.mark.parametrize(("mood", "code"), [(8, 3), (2, 1)])
def test_one_agents_broken_file_is_named_and_the_others_are_evaluated(
    two: Agent, llm_server: LLMServer, propositions: PropositionFolder, tmp_path: Path, mood: int, code: int
) -> None:
    planted(llm_server, mood=mood)
    two_builds(propositions, "bob")
    baseline()
    propositions.write("adherence/bob.yaml", "propositions:\n  - {id: dry, clam: dry}\n")
    comment, xml = tmp_path / "comment.md", tmp_path / "junit.xml"

    ended, out, said = run(
        *("--where", "build=41", "--dimensions", "adherence", "--json"),
        *("--markdown", str(comment), "--junit", str(xml)),
    )

    document = json.loads(out)
    assert (ended, document["summary"]["exit_code"]) == (code, code)
    assert [one["agent"] for one in document["runs"]] == ["ada"]
    for text in (said, document["summary"]["unusable"], unescape(comment.read_text()), xml.read_text()):
        assert "bob.yaml:2: propositions[0].clam (dry)" in text
    assert "✅" not in comment.read_text()


# -- What a build is held to: how it is written, and what makes no sense
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", {ALL_DIMENSIONS: 5.0}),
        (" 5 , fluency = 0 ", {ALL_DIMENSIONS: 5.0, "fluency": 0.0}),
        ("overall=6.5", {"overall": 6.5}),
    ],
)
def test_thresholds_are_read(text: str, expected: dict[str, float]) -> None:
    assert parse_thresholds(text) == expected


@pytest.mark.parametrize("text", ["ten", "10", "nan", "adherence=", "charm=5", "fluency=4,fluency=4"])
def test_a_threshold_that_makes_no_sense_names_itself_and_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"--threshold .*(allowed|twice)"):
        parse_thresholds(text)


def test_a_number_for_all_holds_for_scores_and_not_for_counts() -> None:
    limits = Limits(thresholds=parse_thresholds("5,fluency=4"))

    assert [limits.threshold(d) for d in ("adherence", "fluency", "ideas_quantity", "overall")] == [
        5.0,
        4.0,
        None,
        None,
    ]


def test_a_threshold_for_what_is_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="fluency: not among the dimensions measured: adherence"):
        Limits(thresholds={"fluency": 4}).check_dimensions(["adherence"])


def test_a_broken_proposition_file_is_wrong_usage(two: Agent, tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "x.yaml").write_text("dimension: charm\n")

    assert "dimension" in refused("--propositions", str(tmp_path / "claims"))


def test_a_dry_run_names_one_agents_broken_file_and_estimates_the_others(
    two: Agent, propositions: PropositionFolder
) -> None:
    two_builds(propositions, "bob")
    propositions.write("adherence/bob.yaml", "propositions:\n  - {id: dry, clam: dry}\n")

    code, out, said = run("--dry-run", "--dimensions", "adherence", "--json")

    assert (code, [one["agent"] for one in json.loads(out)["agents"]]) == (3, ["ada"])
    assert "bob.yaml:2: propositions[0].clam (dry)" in said
