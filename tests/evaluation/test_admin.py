"""The console's pages for what was measured, and what measuring adds to the pages of agents and messages."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from django.test import Client

from agents.admin.transcript import transcript_url
from agents.kit.models import LLMCall
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.summary import summarize
from tests.console import figures, list_of, page_of, plain, read, row_about
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import LLM, OFFLINE, cells, make_run, make_score
from tests.evaluation.measuring import measured
from tests.factories import make_agent, make_channel, say, talk

pytestmark = pytest.mark.django_db


def test_a_run_is_listed_with_its_judge_judgements_and_cost(root: Client) -> None:
    agent = make_agent()
    run = make_run(agent, is_baseline=True, overall_score=6.5, dimensions=["adherence", "fluency"])
    make_score(run, 6)
    make_score(run, 7, proposition_id="b")
    make_score(run, 9, proposition_id="c", status="trivial")
    make_score(run, None, proposition_id="d", reason="timeout")
    call = {"role": "judge", "purpose": "evaluation", "model": "m", "provider": "anthropic", "status": "ok"}
    LLMCall.objects.create(work_id=run.work_id, input_tokens=1000, output_tokens=234, cost_usd=Decimal("0.01"), **call)
    LLMCall.objects.create(work_id=run.work_id, input_tokens=1, **call)
    LLMCall.objects.create(work_id=f"{run.work_id}0", input_tokens=99, cost_usd=Decimal(5), **call)
    html = read(root, list_of(EvaluationRun))

    (name,) = cells(html, "name")
    assert f"#{run.pk}" in name
    assert "baseline" in name
    assert cells(html, "status") == ["completed"]
    (measured,) = cells(html, "measured")
    assert {"Ada", "adherence", "fluency"} <= set(measured.split())
    assert LLM in html.partition("<table")[0], "said once, above"
    (overall,) = cells(html, "overall")
    assert figures(overall) == ["2", "3", "6.5"]
    (judged,) = cells(html, "judged")
    assert {"2 scored", "1 trivial", "1 unscored"} == set(re.findall(r"\d+ \w+", judged))
    (spent,) = cells(html, "spent")
    assert figures(spent) == ["0.0100", "1", "1,235"]
    assert "unpriced" in spent


def test_a_runs_page_shows_means_and_the_worst_of_the_weakest_proposition(root: Client) -> None:
    agent, channel = make_agent(), make_channel()
    first, second = say(channel, agent, "A dry remark."), say(channel, agent, "Hooray, hooray!")
    run = make_run(agent, status="failed", error="3 calls timed out")
    make_score(run, 8, message=first, proposition_id="polite", weight=3)
    make_score(run, 6, message=first)
    make_score(run, 2, message=second, context_snippet="Hooray, hooray!")
    html = read(root, page_of(run))
    text = plain(html)

    assert "3 calls timed out" in text
    (adherence,) = re.findall(r"adherence (\d.\d) \D*3 of 3", text)
    assert adherence == "6.4"  # (3·8 + 6 + 2) / (3 + 1 + 1)
    dry = row_about(html, "dry", "weakest")
    polite = row_about(html, "polite")
    assert (figures(dry), figures(polite)) == (["1", "2", "2", "2", "4.0"], ["1", "1", "1", "3", "8.0"])
    assert "weakest" not in polite
    worst = text.partition("Weakest: dry")[2]
    assert "2 of 9" in worst
    assert "Hooray, hooray!" in worst
    assert "A dry remark." not in text
    assert transcript_url(second).replace("&", "&amp;") in html
    scores = re.search(r'href="([^"]*proposition_id=dry[^"]*)"', html)
    assert scores is not None
    listed = read(root, scores.group(1).replace("&amp;", "&"))
    assert len(cells(listed, "outcome")) == 2
    assert f"evaluation {run.pk}" in listed


def test_a_score_leads_to_its_message_and_its_proposition(root: Client) -> None:
    agent, channel = make_agent(), make_channel()
    message = say(channel, agent, "Hooray!")
    score = make_score(
        make_run(agent),
        2,
        message=message,
        reasoning="R" * 300,
        justification="Because.",
        flaws=["too loud"],
        raw_score=7,
        inverted=True,
    )
    listed, page = read(root, list_of(EvaluationScore)), read(root, page_of(score))

    for html in (listed, page):
        assert transcript_url(message).replace("&", "&amp;") in html
        assert "Ada is dry" in html
        assert "anti-pattern" in html
    assert "<details" in listed
    assert "R" * 300 in page
    assert "too loud" in page
    assert f"?message={message.pk}" in read(root, transcript_url(message))


def test_scores_are_filtered_by_what_people_look_for(root: Client) -> None:
    ada, bob = make_agent(), make_agent("bob")
    make_score(make_run(ada), 3)
    make_score(make_run(bob, judge=OFFLINE), None, dimension="fluency", proposition_id="flows", reason="no judge")

    def found(query: str) -> int:
        return len(cells(read(root, list_of(EvaluationScore, query)), "outcome"))

    filters = ("dimension__exact=fluency", "status__exact=unscored", f"judge={OFFLINE}", "proposition_id=flows")
    assert [found(f"?{query}") for query in (*filters, f"evaluation_run__agent__id__exact={bob.pk}")] == [1] * 5
    assert found("") == 2
    assert found("?run=nonsense") == 0
    assert found("?run=99999999999999999999") == 0


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_rule_that_holds_as_often_as_asked_is_not_the_weakest(
    root: Client, propositions: PropositionFolder, repeats: int
) -> None:
    propositions.write(
        "adherence/ada.yaml",
        """
        dimension: adherence
        agent_id: ada
        propositions:
          - {id: often, claim: "{{agent_name}} often says ahoy", rule: {contains_any: [ahoy]}, of_ten: 6}
          - {id: calm, claim: "{{agent_name}} is calm", rule: {contains_none: ["!"]}}
        """,
    )
    ada = make_agent("ada")
    talk(ada, [*["Ahoy."] * 6, *["Hello."] * 2, *["Hello!"] * 2])
    run = measured(ada, dimensions=("adherence",), repeats=repeats).summary.run

    weakest = summarize(run).dimensions["adherence"].weakest
    page = plain(read(root, page_of(run)))

    assert weakest is not None
    assert (weakest.id, weakest.score) == ("calm", 7.2)
    assert "in 6.0 of 10 messages; at least 6" in page
