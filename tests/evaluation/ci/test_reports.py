"""The verdict as Markdown, JUnit and a table; texts of agents and judges are data in all of them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path

import pytest
from pytest_django import Settings

from agents.kit.text.markdown import as_code, plain
from agents.models import Agent
from evaluation.ci.junit import as_xml
from evaluation.ci.markdown import shortened
from tests.evaluation.ci.building import baseline, own_bot, planted, report, run
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, entry
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

SNAPSHOTS = Path(__file__).with_name("snapshots")
HOSTILE = (
    "@octocat | see #1 & <img src=x onerror=alert(1)> `rm -rf` [x](javascript:alert(1)) ![](http://evil/p.png)\n\n"
    "</details><script>alert(1)</script>\n| a | b |\n# Approved\n```\n<!-- plumbline --> https://evil.example \u202e\x07"
)


@pytest.fixture
def regressed(two: Agent, llm_server: LLMServer) -> Agent:
    planted(llm_server, mood=3)
    baseline()
    return two


def written(tmp_path: Path, *arguments: str) -> tuple[str, ET.Element]:
    comment, xml = tmp_path / "comment.md", tmp_path / "junit.xml"
    run("--markdown", str(comment), "--junit", str(xml), *arguments)
    return comment.read_text(encoding="utf-8"), ET.fromstring(xml.read_text(encoding="utf-8"))  # noqa: S314 (ours)


# -- Markdown
@pytest.mark.django_db
def test_the_comment_is_as_it_was_agreed(regressed: Agent, tmp_path: Path) -> None:
    comment, _ = written(tmp_path, "--where", "build=41", "--threshold", "7")

    dated = re.sub(r"\d{4}-\d\d-\d\d", "DATE", comment)
    dated = re.sub(r"[\d,]+ tokens in, [\d,]+ out", "TOKENS", dated)  # every change of a prompt changes them
    assert dated == (SNAPSHOTS / "comment.md").read_text(encoding="utf-8")


@pytest.mark.django_db
def test_hostile_messages_slugs_and_judges_are_code_in_the_comment(
    two: Agent, llm_server: LLMServer, tmp_path: Path
) -> None:
    talk(two, [HOSTILE] * 3, channel=make_channel("hostile"), tags={"build": "42"})
    llm_server.respond = answers(lambda claim: entry(1, reasoning=HOSTILE))

    comment, suites = written(tmp_path, "--where", "build=42", "--threshold", "5")

    assert "octocat" in comment
    assert comment.count("<!--") == 1
    outside = re.sub(r"<code>[^<>]*</code>", "", comment)
    for text in ("octocat", "script", "evil", "javascript", "onerror", "Approved", "`"):
        assert text not in outside
    inside = "".join(re.findall(r"<code>(.*?)</code>", comment))
    assert not set("@|`[]!<>\\*_\u202e\x07") & set(inside), "everything that could be read as markup is a reference"
    assert "#" not in re.sub(r"&#\d+;", "", inside)
    assert comment.count("<details>") == comment.count("</details>")
    for row in re.findall(r"^\|.*\|$", comment, re.MULTILINE):
        assert row.count("|") in (6, 8, 5), row
    (failure,) = suites.iter("failure")
    assert "octocat" in failure.attrib["message"]
    assert "\x07" not in ET.tostring(suites, encoding="unicode")


def test_no_character_of_a_text_can_be_structure_or_a_mention() -> None:
    assert as_code("@team #12 a|b") == "<code>&#64;\u2060team &#35;\u206012 a&#124;b</code>"
    assert as_code("") == ""
    assert plain("a\u202eb\u200b\x00c\n\td") == "abc d"
    assert len(plain("x" * 500)) == 240
    assert as_xml("a\x00\x0b\ud800b\U0001f600") == "a\ufffd\ufffd\ufffdb\U0001f600"


def test_a_comment_that_github_would_refuse_is_cut_between_lines_and_closed() -> None:
    text = "head\n<details>\n" + "".join(f"* line {n}\n" for n in range(9_000)) + "</details>\n"

    cut = shortened(text)

    assert shortened("short\n") == "short\n"
    assert len(cut) < 65_536
    assert re.search(r"\n\* line \d+\n\n</details>\n\n\*Cut: [\d,]+ of [\d,]+ characters", cut)
    assert cut.count("<details>") == cut.count("</details>")


# -- JUnit
@pytest.mark.django_db
def test_junit_has_a_case_per_agent_and_dimension(regressed: Agent, tmp_path: Path) -> None:
    talk(make_agent("mute"), ["Hm."], tags={"build": "40"})

    _, suites = written(tmp_path, "--where", "build=41")

    assert suites.tag == "testsuites"
    assert {name: suites.attrib[name] for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "2",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    assert [suite.attrib["name"] for suite in suites] == ["ada", "mute"]
    case = suites.find("testsuite[@name='ada']/testcase")
    assert case is not None
    assert (case.attrib["classname"], case.attrib["name"]) == ("plumbline.ada", "adherence")
    failure = case.find("failure")
    assert failure is not None
    named = (
        "mood",
        "“claim mood of Ada”",
        "8.0 · 100 % → 2.9 · 100 %",
        "#ada-41 8 “line 7 of build 41”",
        "“Ada: line 6 of build 41”",
    )
    assert [part for part in named if part not in failure.attrib["message"]] == []
    for element in suites.iter():
        assert element.tag in {
            *("testsuites", "testsuite", "testcase", "failure", "error", "skipped"),
        }


@pytest.mark.django_db
def test_reports_are_written_when_nothing_was_measured(two: Agent, llm_server: LLMServer, tmp_path: Path) -> None:
    comment, suites = written(tmp_path, "--where", "build=99")

    assert "could not judge enough" in comment
    assert suites.attrib["errors"] == "1"


# -- terminal
@pytest.mark.django_db
def test_the_table_fits_80_columns_and_carries_no_terminal_codes(two: Agent, llm_server: LLMServer) -> None:
    two.slug = "a-very-long-name-for-an-agent"
    two.save()
    talk(two, ["\x1b[31m[bold]red[/bold]" + HOSTILE] * 3, channel=make_channel("hostile"), tags={"build": "42"})
    llm_server.respond = answers(lambda claim: 1)

    _, out, said = run("--where", "build=42", "--threshold", "5")

    assert max(len(line) for line in out.splitlines() if not line.startswith("Estimate:")) <= 80
    assert "\x1b" not in out + said
    assert "[bold]red[/bold]" in out.replace("\n", "")


# -- what there is no second score of
@pytest.mark.django_db
def test_hits_on_one_side_stand_in_every_report_and_fail_the_build(
    propositions: PropositionFolder, settings: Settings, tmp_path: Path
) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    own_bot(propositions)
    before = tmp_path / "before.json"
    asked = ("--agents", "nora", "--dimensions", "adherence", "--samples", "50")
    run(*asked, "--where", "build=7", "--out", str(before))
    against = (*asked, "--where", "build=8", "--baseline", str(before))

    comment, suites = written(tmp_path, *against)
    code, table, _ = run(*against)
    document = report(*against)

    failure = suites.find("testsuite/testcase/failure")
    assert code == 1
    assert failure is not None
    for text in (table, comment, failure.text or ""):
        text = unescape(re.sub(r"<[^>]*>", "", " ".join(text.split())))
        for part in ("stock", "0 of 28", "7 of 24", "Dear customer", "write rules or cues for kind, warm"):
            assert part in text, (part, text)
    (entry,) = document["regressions"]
    assert (entry["proposition"], entry["hits"]) == ("stock", {"hits": 7, "messages": 24})
    assert document["runs"][0]["shown"][0]["verdict"] == "worse"


@pytest.mark.django_db
def test_hits_that_are_no_regression_stand_in_every_report_and_fail_nothing(
    propositions: PropositionFolder, settings: Settings, tmp_path: Path
) -> None:
    """Other shares of hits: `test_comparison`."""
    settings.JUDGE_MODEL = "offline:lexical-1"
    nora = own_bot(propositions)
    for build, hits, messages in (("9", 0, 28), ("10", 3, 24)):
        texts = [f"{'Dear customer' if n < hits else 'Hello'}, it is number {n}." for n in range(messages)]
        talk(nora, texts, channel=make_channel(f"nora-{build}"), tags={"build": build})
    asked = ("--agents", "nora", "--dimensions", "adherence", "--samples", "50")
    run(*asked, "--where", "build=9", "--out", str(tmp_path / "before.json"))
    against = (*asked, "--where", "build=10", "--baseline", str(tmp_path / "before.json"), "--max-unscored", "1")

    comment, suites = written(tmp_path, *against)
    code, table, _ = run(*against)
    document = report(*against)

    output = suites.findtext("testsuite/testcase/system-out")
    assert code == 0
    for text in (table, comment, output or ""):
        text = unescape(re.sub(r"<[^>]*>|\*", "", " ".join(text.split())))
        for part in ("stock", "more hits, not significant", "0 of 28", "3 of 24"):
            assert part in text, (part, text)
    assert [(one["proposition"], one["verdict"]) for one in document["hits"]] == [
        ("stock", "more hits, not significant")
    ]


@pytest.mark.django_db
def test_a_one_sided_score_is_no_plain_tick_and_in_every_report(
    propositions: PropositionFolder, settings: Settings, tmp_path: Path
) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    own_bot(propositions)
    before = tmp_path / "before.json"
    propositions.write(
        "adherence/_default.yaml",
        """
        dimension: adherence
        propositions:
          - {id: glad, claim: "{{agent_name}} is glad", cues: {supports: ["tell me"]}}
        """,
    )
    asked = ("--agents", "nora", "--dimensions", "adherence", "--samples", "50")
    run(*asked, "--where", "build=8", "--out", str(before))
    document = json.loads(before.read_text())
    (of_file,) = document["runs"]
    of_file["dimensions"]["adherence"] |= {"score": None, "coverage": 0.0, "propositions": {"glad": None}}
    of_file["observations"]["adherence"]["glad"] |= {"scores": {}}
    before.write_text(json.dumps(document))
    against = (*asked, "--where", "build=8", "--baseline", str(before))

    comment, suites = written(tmp_path, *against)
    code, table, _ = run(*against)

    skipped = suites.find("testsuite/testcase/skipped")
    assert (code, run(*against, "--strict")[0]) == (0, 2)
    assert skipped is not None
    assert "✅" not in table
    for text in (table, comment, skipped.attrib["message"]):
        assert "scored only now" in text
        assert "tell me about number 28" in text


@pytest.mark.django_db
@pytest.mark.usual_minimum
def test_what_is_left_of_a_lost_persona_is_no_score(
    propositions: PropositionFolder, settings: Settings, tmp_path: Path
) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    propositions.write(
        "adherence/_default.yaml",
        """
        dimension: adherence
        propositions:
          - {id: brief, claim: "{{agent_name}} is brief", rule: {max_words: 30}}
          - {id: greets, claim: "{{agent_name}} greets", cues: {supports: [good morning]}}
          - {id: sails, claim: "{{agent_name}} speaks of the sea", cues: {supports: [sea]}}
          - {id: thanks, claim: "{{agent_name}} thanks", cues: {supports: [thank you]}}
        """,
    )
    ada = make_agent("ada")
    sailor = [f"Good morning! The sea is calm, thank you, at mile {n}." for n in range(20)]
    chess = [f"The bishop takes the pawn on e{n % 8 + 1}." for n in range(20)]
    for build, texts in (("40", sailor), ("41", chess)):
        talk(ada, texts, channel=make_channel(f"ada-{build}"), tags={"build": build})
    asked = ("--agents", "ada", "--dimensions", "adherence")
    baseline("--dimensions", "adherence")

    comment, suites = written(tmp_path, *asked, "--where", "build=41")
    code, table, said = run(*asked, "--where", "build=41")
    document = report(*asked, "--where", "build=41")

    error = suites.find("testsuite/testcase/error")
    adherence = document["runs"][0]["dimensions"]["adherence"]
    assert (code, document["summary"]["verdict"]) == (2, "not enough data"), said
    assert (adherence["score"], document["runs"][0]["overall_score"]) == (None, None)
    assert error is not None
    for text in (table, comment, error.attrib["message"], adherence["reason"]):
        text = " ".join(text.split())
        assert "9.0" not in text
        assert "less than half as much is scored as in the baseline" in text
