"""The passport of a judge: what decides it, whose labels count, and where it stands."""

from __future__ import annotations

import contextlib
import io
import json
import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from agents.models import Agent
from evaluation.calibration.agreement import compute_agreement
from evaluation.calibration.jobs import JudgeCheckRequest, request_check
from evaluation.calibration.labels import Key
from evaluation.calibration.models import JudgeCalibration
from evaluation.calibration.passport import not_usable_line, passport_of, passport_text, passports, passports_of
from evaluation.calibration.stored import refresh, work_one
from evaluation.jobs import work_one as work_one_job
from evaluation.models import EvaluationRun, Job
from evaluation.runs.execute import capture
from evaluation.runs.execute import work_one as work_one_run
from evaluation.runs.schedules import work_one as work_one_schedule
from evaluation.runs.spec import RunSpec
from tests.console import page_of, read, signed_in, staff, superuser
from tests.evaluation.calibration.labelled import KEY, judgements, label_all
from tests.evaluation.change.drift.scheduling import make_schedule, measured_day
from tests.evaluation.change.measured import flattened
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import LLM, make_run
from tests.evaluation.judging import answers, claims_of
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

FLUENCY = Key(LLM, "plumbline", "fluency")
GOOD_KAPPA = {
    "kappa": 0.8,
    "kappa_low": 0.7,
    "kappa_high": 0.9,
    "labels": 80,
    "items": 80,
    "annotators": 1,
    "figures": {"conversations": 12},
}
MAYBE_KAPPA = {**GOOD_KAPPA, "kappa": 0.65, "kappa_low": 0.5, "kappa_high": 0.75}
BAD_KAPPA = {**GOOD_KAPPA, "kappa": 0.4, "kappa_low": 0.2, "kappa_high": 0.59}
FIRST = {"endpoint": "", "served_model": "one", "prompt_digest": "aa"}
SECOND = {"endpoint": "", "served_model": "two", "prompt_digest": "aa"}


def swap(low: float, high: float, **fields: Any) -> dict[str, Any]:
    """A swap test as it is stored."""
    shown = {"reason": "", "high_share": 0.1, "own_scored": 60, "swapped_scored": 60, "agents": 6, "against": "agents"}
    return {
        **shown,
        "auc": (low + high) / 2,
        "interval": [low, high],
        "checked_at": "2026-11-23T15:00:00+00:00",
        **fields,
    }


def order(low: float, high: float) -> dict[str, Any]:
    """An order test as it is stored."""
    figure = {"value": (low + high) / 2, "interval": [low, high], "n": 40, "reason": ""}
    return {"shuffled": figure, "alone": figure, "pairs": 120, "checked_at": "2026-11-23T15:00:00+00:00"}


def beyond(low: float, high: float) -> dict[str, Any]:
    """Figures with the judge's agreement beside that of two people."""
    return {
        "conversations": 12,
        "beyond_people": {"value": (low + high) / 2, "interval": [low, high], "n": 40, "reason": ""},
    }


# -- what decides
@pytest.mark.parametrize(
    ("stored", "verdict", "decided_by"),
    [
        ({}, "not shown", ["agreement", "swap test"]),
        ({**GOOD_KAPPA}, "not shown", ["swap test"]),
        ({"swap_test": swap(0.8, 0.9)}, "not shown", ["agreement"]),
        ({**GOOD_KAPPA, "swap_test": swap(0.8, 0.9)}, "usable", ["agreement", "swap test"]),
        ({**GOOD_KAPPA, "figures": {"conversations": 9}, "swap_test": swap(0.8, 0.9)}, "not shown", ["agreement"]),
        ({**BAD_KAPPA, "figures": {"conversations": 9}, "swap_test": swap(0.8, 0.9)}, "not shown", ["agreement"]),
        ({**GOOD_KAPPA, "swap_test": swap(0.45, 0.7)}, "not shown", ["swap test"]),
        ({**MAYBE_KAPPA, "swap_test": swap(0.8, 0.9)}, "not shown", ["agreement"]),
        ({**GOOD_KAPPA, "items": 12, "labels": 12, "swap_test": swap(0.8, 0.9)}, "not shown", ["agreement"]),
        ({**GOOD_KAPPA, "swap_test": swap(0.3, 0.45)}, "not usable", ["swap test"]),
        ({**BAD_KAPPA, "swap_test": swap(0.8, 0.9)}, "not usable", ["agreement"]),
        (
            {**GOOD_KAPPA, "swap_test": swap(0.8, 0.9), "order_test": order(-0.2, 0.1)},
            "usable",
            ["agreement", "swap test"],
        ),
        (
            {**GOOD_KAPPA, "swap_test": swap(0.8, 0.9), "order_test": order(-0.9, -0.3)},
            "usable",
            ["agreement", "swap test"],
        ),
        ({**GOOD_KAPPA, "swap_test": swap(0.8, 0.9), "order_test": order(-0.9, -0.6)}, "not usable", ["order"]),
        (
            {**GOOD_KAPPA, "annotators": 2, "figures": beyond(-0.2, -0.02), "swap_test": swap(0.8, 0.9)},
            "usable",
            ["agreement", "swap test"],
        ),
        (
            {**GOOD_KAPPA, "annotators": 2, "figures": beyond(-0.3, -0.11), "swap_test": swap(0.8, 0.9)},
            "not usable",
            ["people"],
        ),
    ],
)
def test_bounds_decide(stored: dict[str, Any], verdict: str, decided_by: list[str]) -> None:
    passport = passport_of(KEY, JudgeCalibration(**KEY._asdict(), **stored))

    assert (passport.verdict, passport.decided_by) == (verdict, decided_by)


def test_a_dimension_over_a_window_needs_no_swap_test() -> None:
    passport = passport_of(FLUENCY, JudgeCalibration(**FLUENCY._asdict(), **GOOD_KAPPA))

    assert (passport.verdict, passport.decided_by) == ("usable", ["agreement"])
    assert passport.row("swap test") is None


def test_a_higher_setting_asks_more_of_agreement(settings: Settings) -> None:
    settings.JUDGE_LEAST_KAPPA = 0.75

    passport = passport_of(FLUENCY, JudgeCalibration(**FLUENCY._asdict(), **GOOD_KAPPA))

    assert passport.verdict == "not shown"


@pytest.mark.parametrize(
    ("stored", "missing"),
    [
        ({}, "at least 20 labels"),
        ({**GOOD_KAPPA, "items": 12, "labels": 12}, "at least 8 more labels"),
        ({**GOOD_KAPPA, "figures": {"conversations": 3}}, "labels of 7 more conversations"),
        (MAYBE_KAPPA, "about 640 more labels"),  # 0.15 below, 0.05 above the limit: nine times as many
        ({**MAYBE_KAPPA, "kappa": 0.601}, "many more labels"),
        ({**MAYBE_KAPPA, "kappa": 0.5, "kappa_low": 0.3, "kappa_high": 0.7}, "about 240 more labels"),
    ],
)
def test_it_says_how_many_more_labels_would_decide(stored: dict[str, Any], missing: str) -> None:
    passport = passport_of(FLUENCY, JudgeCalibration(**FLUENCY._asdict(), **stored))

    assert passport.missing == [missing]
    assert missing in passport_text(passport)


def test_perfect_agreement_of_few_labels_is_no_certainty() -> None:
    label_all(judgements([0, 9] * 10), [0, 9] * 10)
    refresh(KEY)

    (passport,) = passports(LLM, "plumbline", ["adherence"])

    agreement = passport.rows[0]
    assert agreement.value == 1
    assert agreement.interval is not None
    assert agreement.interval[0] < 0.75


def test_labels_of_two_values_give_precision_and_recall_of_violations() -> None:
    judged = judgements([0, 2, 9, 9, 9, 9, 9, 1] * 5, inverted=[False] * 40)
    label_all(judged, [0, 0, 0, 9, 9, 9, 9, 9] * 5)

    agreement = compute_agreement(judge=LLM, dimension="adherence")

    assert agreement.precision is not None
    assert agreement.recall is not None
    assert agreement.precision.value == pytest.approx(10 / 15, abs=1e-4)
    assert agreement.recall.value == pytest.approx(10 / 15, abs=1e-4)
    assert (agreement.precision.n, agreement.recall.n) == (15, 15)
    assert agreement.recall.interval is not None
    assert agreement.recall.interval[0] == pytest.approx(0.417, abs=0.001)  # Wilson
    refresh(KEY)
    (passport,) = passports(LLM, "plumbline", ["adherence"])
    assert [row.name for row in passport.rows if row.verdict is None] == ["precision", "recall", "retest", "coverage"]


# -- whose labels count
def test_labels_of_an_earlier_model_do_not_count() -> None:
    ada = make_agent()
    before = make_run(ada, dimensions=["adherence"], prompt_digest="aa")
    label_all(judgements([0, 9] * 10, run=before, fields={"served_model": "one"}), [0, 9] * 10)
    refresh(KEY)
    assert passports(LLM, "plumbline", ["adherence"])[0].labels == 20

    now = make_run(ada, dimensions=["adherence"], prompt_digest="aa")
    label_all(judgements([3, 5, 9], run=now, fields={"served_model": "two"}), [3, 5, 9])
    refresh(KEY)

    (passport,) = passports(LLM, "plumbline", ["adherence"])
    assert (passport.labels, passport.earlier_labels) == (3, 20)
    assert passport.identity is not None
    assert passport.identity.served_model == "two"


@pytest.mark.parametrize(("swap_identity", "is_old"), [(FIRST, True), (SECOND, False)])
def test_figures_of_another_model_than_the_newest_decide_nothing(swap_identity: dict[str, str], is_old: bool) -> None:
    stored = {
        **GOOD_KAPPA,
        "figures": {"identity": FIRST},
        "identity": SECOND,
        "swap_test": swap(0.8, 0.9, identity=swap_identity),
    }

    passport = passport_of(KEY, JudgeCalibration(**KEY._asdict(), **stored))

    swap_row = passport.row("swap test")
    assert swap_row is not None
    assert passport.rows[0].verdict == "not shown"
    assert (swap_row.verdict == "not shown") == is_old


def test_beside_a_fresh_evaluation_it_does_not_say_that_nothing_was_judged(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent()
    talk(ada, [f"Line {n}." for n in range(12)])
    llm_server.respond = answers(lambda claim: 8)

    def coverage() -> str:
        (passport,) = passports_of([found.summary.run])
        return next(row.text for row in passport.rows if row.name == "coverage")

    (found,) = capture([RunSpec(agent=ada, dimensions=("adherence",))])

    assert coverage() == "not computed yet"
    assert work_one(owner="test")
    assert coverage() == "12 of 12 scored, 1 evaluation"


def test_an_evaluation_by_another_model_makes_the_passport_stale(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent()
    talk(ada, [f"Line {n}." for n in range(12)])
    llm_server.respond = answers(lambda claim: 8)
    capture([RunSpec(agent=ada, dimensions=("adherence",))])
    while work_one(owner="test"):
        pass
    known = JudgeCalibration.objects.get(dimension="adherence")
    assert known.observed["scored"] == 12
    assert known.identity["served_model"]

    JudgeCalibration.objects.update(identity={**known.identity, "served_model": "an earlier one"})
    capture([RunSpec(agent=ada, dimensions=("adherence",), seed=1)])

    assert JudgeCalibration.objects.get(dimension="adherence").is_stale
    assert work_one(owner="test")
    assert JudgeCalibration.objects.get(dimension="adherence").identity == known.identity


def test_repeats_of_a_known_judge_show_their_spread(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent()
    talk(ada, [f"Line {n}." for n in range(12)])
    llm_server.respond = answers(lambda claim: 8)
    for repeats in (1, 3):
        capture([RunSpec(agent=ada, dimensions=("adherence",), repeats=repeats, seed=repeats)])
        while work_one(owner="test"):
            pass

    assert JudgeCalibration.objects.get(dimension="adherence").observed["repeated"] == 12


# -- where it stands
def calibrated(**fields: Any) -> JudgeCalibration:
    row: JudgeCalibration = JudgeCalibration.objects.create(**KEY._asdict(), **fields)
    return row


def test_a_judge_that_is_not_usable_is_said_first() -> None:
    calibrated(**BAD_KAPPA)

    line = not_usable_line(passports(LLM, "plumbline", ["adherence", "fluency"]))

    assert f"{LLM} in adherence" in line
    assert "fluency" not in line
    assert not_usable_line(passports("another", "plumbline", ["adherence"])) == ""


def test_the_badge_leads_to_the_page_of_the_judge_with_its_rows() -> None:
    calibrated(**GOOD_KAPPA, swap_test=swap(0.8, 0.9))
    run = make_run(make_agent(), dimensions=["adherence"])
    judgements([5], run=run)
    root = signed_in(superuser())

    assert "judge usable: κ 0.80 [0.70, 0.90], 80 labels" in read(root, page_of(run))
    page = (
        f"{reverse('admin:calibration_judgecalibration_passport')}?judge={LLM}&procedure=plumbline&dimension=adherence"
    )
    html = read(root, page)
    for words in ("Agreement with people", "Swap test", "0.70 to 0.90", "10 % of swapped texts"):
        assert words in html


def test_the_page_of_an_unknown_judge_leads_to_what_is_missing() -> None:
    run = make_run(make_agent(), dimensions=["adherence"])
    judgements([5], run=run)
    root = signed_in(superuser())
    page = (
        f"{reverse('admin:calibration_judgecalibration_passport')}?judge={LLM}&procedure=plumbline&dimension=adherence"
    )

    html = read(root, page)

    assert "no human labels yet" in html
    draw = f"{reverse('admin:calibration_labelset_add')}?judged_by={LLM}%2C+plumbline&dimension=adherence&n=20"
    assert draw.replace("&", "&amp;") in html
    assert 'value="20"' in read(root, draw)
    reader = signed_in(staff("calibration.view_judgecalibration", username="reader"))
    assert "Run the swap test" not in read(reader, page)


@pytest.mark.parametrize(
    ("procedure", "options"),
    [("plumbline", ""), ("plumbline+hard", " --hard"), ("plumbline+double-check", " --double-check")],
)
def test_a_procedure_without_a_button_for_the_swap_test_has_its_command(procedure: str, options: str) -> None:
    query = urlencode({"judge": LLM, "procedure": procedure, "dimension": "adherence"})

    html = read(signed_in(superuser()), f"{reverse('admin:calibration_judgecalibration_passport')}?{query}")

    command = f"manage.py check_judge --judge {LLM} --dimensions adherence --method plumbline{options}<"
    assert (command in html) == bool(options)


def test_who_sees_scores_may_open_the_page_of_their_judge() -> None:
    run = make_run(make_agent(), dimensions=["adherence"])
    judgements([5], run=run)
    reader = signed_in(staff("evaluation.view_evaluationrun", username="reader"))
    link = re.search(r'href="([^"]*judgecalibration/passport[^"]*)"', read(reader, page_of(run)))
    assert link is not None
    page = unescape(link[1])

    assert reader.get(page).status_code == 200
    assert signed_in(staff(username="nobody")).get(page).status_code == 403


@pytest.mark.parametrize(
    "query", ["judge=x&dimension=ideas_quantity", "judge=x&dimension=no", "judge=x&procedure=no&dimension=adherence"]
)
def test_there_is_no_page_for_what_has_no_passport(query: str) -> None:
    root = signed_in(superuser())

    response = root.get(f"{reverse('admin:calibration_judgecalibration_passport')}?{query}")

    assert response.status_code == 404


# -- a build that requires it
@pytest.fixture
def build(llm_server: LLMServer, propositions: PropositionFolder) -> LLMServer:
    """An agent that a build can measure."""
    propositions.claims("adherence/_default.yaml", "voice")
    talk(make_agent("ada"), [f"Line {n}." for n in range(12)])
    llm_server.respond = answers(lambda claim: 8)
    return llm_server


def evaluated(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and JSON of a build."""
    out = io.StringIO()
    code = 0
    try:
        call_command("evaluate", "--agents", "ada", "--dimensions", "adherence", "--json", *arguments, stdout=out)
    except CommandError as error:
        code = error.returncode
    return code, json.loads(out.getvalue())


def test_a_build_without_the_passport_it_requires_ends_with_2(build: LLMServer) -> None:
    code, document = evaluated("--require-passport")

    assert (code, document["summary"]["verdict"]) == (2, "judge without a passport")
    (finding,) = document["without_passport"]
    assert (finding["dimension"], finding["missing"]) == (
        "adherence",
        ["at least 20 labels", "a swap test"],
    )
    assert evaluated()[0] == 0


def test_a_build_with_the_passport_it_requires_passes(build: LLMServer) -> None:
    evaluated()
    JudgeCalibration.objects.filter(dimension="adherence").update(**GOOD_KAPPA, swap_test=swap(0.8, 0.9))

    assert evaluated("--require-passport")[0] == 0


def test_exact_rules_need_no_passport(build: LLMServer, propositions: PropositionFolder) -> None:
    propositions.write(
        "adherence/_default.yaml",
        """
        dimension: adherence
        propositions:
          - {id: short, claim: '{{agent_name}} is short', rule: {max_sentences: 2}}
        """,
    )

    code, document = evaluated("--require-passport")

    assert (code, document["without_passport"]) == (0, [])


def test_files_of_a_build_say_first_that_the_judge_is_not_usable(build: LLMServer, tmp_path: Path) -> None:
    evaluated()
    JudgeCalibration.objects.filter(dimension="adherence").update(**BAD_KAPPA)
    markdown_file, junit_file = tmp_path / "report.md", tmp_path / "report.xml"

    code, document = evaluated("--markdown", str(markdown_file), "--junit", str(junit_file))

    assert code == 0
    (line,) = document["summary"]["not_usable"]
    assert "test-model in adherence" in line
    heading = markdown_file.read_text().splitlines()[2]
    assert "\u26a0" in heading
    assert "not usable" in heading
    assert "not usable" in junit_file.read_text().partition("<system-out>")[2]


@pytest.mark.parametrize("door", ["home", "overview", "agent", "evaluation"])
def test_pages_with_a_verdict_say_that_the_judge_is_not_usable(door: str) -> None:
    ada = make_agent()
    flattened(ada)
    calibrated(**BAD_KAPPA)
    pages = {
        "home": "/admin/",
        "overview": reverse("admin:evaluation_drift_overview"),
        "agent": page_of(ada),
        "evaluation": page_of(EvaluationRun.objects.latest("pk")),
    }

    html = read(signed_in(superuser()), pages[door])

    assert "judge not usable" in html or "The judge is not usable" in html
    assert ("The judge is not usable" in html) == (door != "evaluation")  # a page of scores, without a verdict


COMMANDS: list[tuple[str, ...]] = [
    ("evaluate", "--agents", "ada", "--dimensions", "adherence"),
    ("capture_baseline", "--agents", "ada", "--dimensions", "adherence"),
    ("compare", "--agents", "ada", "--dimensions", "adherence"),
    ("drift",),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_say_first_that_the_judge_is_not_usable(build: LLMServer, command: tuple[str, ...]) -> None:
    call_command("capture_baseline", "--agents", "ada", "--dimensions", "adherence", stdout=io.StringIO())
    ada = Agent.objects.get(slug="ada")
    measured_day(
        make_schedule("nightly", ada, due=timezone.now() + timedelta(days=9)), ada, 0, [8, 8], judge="test-model"
    )
    while work_one_schedule(owner="test"):
        pass
    JudgeCalibration.objects.filter(dimension="adherence").update(**BAD_KAPPA)
    out = io.StringIO()

    with contextlib.suppress(SystemExit, CommandError):  # too little to compare
        call_command(*command, stdout=out)

    lines = [line for line in out.getvalue().splitlines() if line and not line.startswith("Estimate")]
    assert "not usable" in lines[0]


def test_files_have_no_labels_to_require_a_passport_of() -> None:
    with pytest.raises(CommandError, match="--require-passport needs the database"):
        call_command("evaluate", "--require-passport", "--personas", "x", "--transcript", "y")


# -- the order test
def talkative() -> None:
    for slug in ("ada", "bob"):
        agent = make_agent(slug, system_prompt=f"You are {slug}.")
        talk(agent, [f"Line {n}." for n in range(12)], channel=make_channel(f"room-of-{slug}"))


def by_order(body: dict[str, Any]) -> dict[str, Any]:
    """A judge that gives two points less to all that is asked together with something else."""
    value = 8 if len(claims_of(body)) == 1 else 6
    return answers(lambda claim: value)(body)


@pytest.mark.parametrize(("judge", "alone"), [(answers(lambda claim: 7), 0.0), (by_order, 2.0)])
def test_asking_alone_shows_what_asking_together_does(
    llm_server: LLMServer, propositions: PropositionFolder, judge: Any, alone: float
) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood", "wit")
    talkative()
    llm_server.respond = judge
    out = io.StringIO()

    call_command("check_judge", "--order", "--dimensions", "adherence", "--samples", "10", "--json", stdout=out)

    result = json.loads(out.getvalue())["order"]["adherence"]
    assert (result["alone"]["value"], result["shuffled"]["value"], result["pairs"]) == (alone, 0.0, 60)
    (passport,) = passports("test-model", "plumbline", ["adherence"])
    row = passport.row("order")
    assert row is not None
    assert row.verdict == ("usable" if alone == 0 else "not usable")
    assert passport.verdict == ("not shown" if alone == 0 else "not usable")


def test_the_order_test_asks_the_same_in_three_ways(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", *(f"claim-{n}" for n in range(6)))
    talkative()
    llm_server.respond = answers(lambda claim: 7)

    call_command(
        "check_judge", "--order", "--agents", "ada", "--dimensions", "adherence", "--samples", "4", stdout=io.StringIO()
    )

    parts = {run.swap_test: run for run in EvaluationRun.objects.all()}
    assert set(parts) == {"own-words", "shuffled", "alone"}
    orders = {
        name: list(run.scores.order_by("pk").values_list("message", "proposition_id")) for name, run in parts.items()
    }
    assert len({frozenset(order) for order in orders.values()}) == 1
    assert orders["shuffled"] != orders["own-words"]
    assert len(llm_server.bodies) == 4 + 4 + 4 * 6


def test_the_console_queues_an_order_test(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    talkative()
    llm_server.respond = answers(lambda claim: 7)

    job = request_check(JudgeCheckRequest(dimensions=["adherence"], samples=5, order=True))
    while work_one_run(owner="test") or work_one_job(owner="test"):
        pass

    job.refresh_from_db()
    assert job.status == Job.Status.COMPLETED
    assert JudgeCalibration.objects.get(dimension="adherence").order_test["pairs"] == 20
    assert "Asked in another way" in read(signed_in(superuser()), reverse("admin:evaluation_job_check"))
