"""The page that compares two measurements: which two, what it says of them, and what it hides from whom."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from io import StringIO
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings
from pytest_django.plugin import DjangoDbBlocker

from agents.kit.text.wording import signed
from agents.models import Agent, Message
from agents.seed import loader
from evaluation.change.sentences import channel_predicate, predicate_of
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.execute import capture
from evaluation.runs.spec import RunSpec
from tests.console import HOSTILE, list_of, page_of, plain, queries, read, signed_in, staff, viewer
from tests.evaluation.ci.building import own_bot
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import make_score
from tests.factories import make_channel
from tests.once import rows_for_all

pytestmark = pytest.mark.django_db

OFFLINE = "offline:lexical-1"


@pytest.fixture(scope="module", autouse=True)
def measured(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Two builds of michael and of pam, the first as their baseline."""
    with rows_for_all(django_db_blocker, JUDGE_MODEL=OFFLINE, PROPOSITION_DIRS=[], WORKER_THREADS=1):
        loader.seed()
        for agent in Agent.objects.filter(slug__in=["michael", "pam"]):
            for build in ("40", "41"):
                capture([RunSpec(agent=agent, where={"build": build}, is_baseline=build == "40")])
        yield


def run_of(slug: str, build: str) -> EvaluationRun:
    run: EvaluationRun = EvaluationRun.objects.get(agent__slug=slug, where={"build": build})
    return run


def compare(client: Client, **asked: str | int) -> str:
    response = client.get(reverse("admin:evaluation_evaluationrun_compare"), asked)
    assert response.status_code == 200
    return str(response.content.decode())


def verdicts(html: str) -> dict[str, str]:
    """By proposition, as the last table has them."""
    rows = re.findall(r"proposition_id=([a-z-]+)\".*?data-label=\"Verdict\">\s*<span[^>]*>([a-z ]+)<", html, flags=re.S)
    return dict(rows)


def test_two_builds_are_compared_proposition_by_proposition_in_words(root: Client) -> None:
    html = compare(root, agent="michael", baseline="build=40", candidate="build=41")

    assert verdicts(html)["michael-dry"] == "drifted"
    assert "Michael Scott gives a dry, neutral answer without feeling or personality" in plain(html)
    assert "heuristic" in plain(html)
    assert "in % the share of judgements scored" in plain(html)  # on a phone nothing shows titles
    said = Message.objects.filter(agent__slug="michael", tags__build="41").values_list("text", flat=True)
    assert any(text[:40] in plain(html) for text in said), "a message shows the change"


def test_a_difference_is_that_of_the_scores_beside_it(root: Client) -> None:
    html = compare(root, agent="michael", baseline="build=40", candidate="build=41")

    compared = 0
    for row in html.split("<tr"):
        cells = dict(re.findall(r'data-label="(A|B|Change)">(.*?)</td>', row, flags=re.S))
        figures = [re.findall(r"[+−]?\d\.\d", plain(cell)) for cell in cells.values()]
        if len(figures) == 3 and all(figures):  # scored in both, and not by hits
            before, now, change = figures
            assert change[0] == signed(float(now[0]) - float(before[0])), plain(row)
            compared += 1
    assert compared > 5


@pytest.mark.parametrize("named", [False, True])
def test_without_more_it_is_the_baseline_and_the_newest_evaluation(root: Client, named: bool) -> None:
    numbers = {"baseline": run_of("michael", "40").pk, "candidate": run_of("michael", "41").pk} if named else {}

    tags = compare(root, agent="michael", baseline="build=40", candidate="build=41")
    assert verdicts(compare(root, agent="michael", **numbers)) == verdicts(tags) != {}


def test_only_what_changed_is_shown_where_the_address_says_so(root: Client) -> None:
    url = reverse("admin:evaluation_evaluationrun_compare")
    asked = {"agent": "michael", "baseline": "build=40", "candidate": "build=41"}
    every = root.get(url, asked)
    changed = root.get(every.context["changed_url"])

    assert set(verdicts(changed.content.decode())) < set(verdicts(every.content.decode()))
    assert len(verdicts(changed.content.decode())) == every.context["changed"]
    assert verdicts(changed.content.decode())["michael-dry"] == "drifted"
    assert "michael-no-lists" not in verdicts(changed.content.decode())
    assert parse_qs(urlsplit(changed.context["swap_url"]).query)["changed"] == ["on"]
    assert verdicts(read(root, changed.context["every_url"])) == verdicts(every.content.decode())


def test_the_page_begins_with_the_sentence_of_the_overview(root: Client) -> None:
    page = root.get(reverse("admin:evaluation_evaluationrun_compare"), {"agent": "michael"})
    (card,) = root.get(reverse("admin:evaluation_drift_overview"), {"q": "michael"}).context["cards"]

    drift = page.context["drift"]
    assert page.context["sentence"] == predicate_of(drift)
    assert (drift.state, drift.main.proposition, drift.main.since) == (
        card["drift"].state,
        card["drift"].main.proposition,
        card["drift"].main.since,
    )
    html = page.content.decode()
    assert html.index("<h1") < html.index(f'data-state="{drift.state}"') + 2_000 < html.index('<form method="get"')


def test_each_message_stands_with_what_was_heard_before_it(root: Client) -> None:
    pairs = root.get(reverse("admin:evaluation_evaluationrun_compare"), {"agent": "michael"}).context["pairs"]

    quotes = [quote for pair in pairs for _, quote in pair["quotes"]]
    assert any(quote.heard for quote in quotes)
    for quote in quotes:
        before = Message.objects.filter(channel=quote.message.channel, position__lt=quote.message.position)
        assert quote.heard == before.order_by("-position").first()


def test_the_page_takes_as_many_statements_however_many_messages_it_shows(root: Client) -> None:
    url = reverse("admin:evaluation_evaluationrun_compare")
    with_pairs = queries(root, f"{url}?agent=michael")
    assert len(root.get(url, {"agent": "michael"}).context["pairs"]) > 1

    assert len(with_pairs) <= 40, "\n".join(with_pairs)
    EvaluationScore.objects.filter(evaluation_run=run_of("michael", "41")).exclude(
        proposition_id="michael-dry"
    ).delete()
    assert len(root.get(url, {"agent": "michael"}).context["pairs"]) <= 1
    assert len(with_pairs) <= len(queries(root, f"{url}?agent=michael")) + 2


def test_a_channel_is_compared_in_a_sentence_of_its_own(root: Client) -> None:
    channel = make_channel("hall")
    runs = []
    for score in (8, 3):
        run = EvaluationRun.objects.create(
            channel=channel, judge=OFFLINE, dimensions=["convergence"], status="completed"
        )
        runs.append(run)
        make_score(run, score, dimension="convergence", proposition_id="talk")
    page = root.get(
        reverse("admin:evaluation_evaluationrun_compare"), {"baseline": runs[0].pk, "candidate": runs[1].pk}
    )

    assert page.context["comparison"].target == "#hall"
    assert page.context["sentence"] == channel_predicate(page.context["comparison"])


def test_what_is_scored_on_one_side_only_is_said_before_the_pairs(root: Client) -> None:
    page = root.get(reverse("admin:evaluation_evaluationrun_compare"), {"agent": "michael"})
    one_sided = {
        change.proposition
        for change in page.context["comparison"].proposition_changes
        if change.reason.startswith("nothing was scored now")
    }
    html = page.content.decode()

    assert one_sided
    for name in one_sided:
        assert html.index(f'data-finding="{name}"') < html.index('id="messages"')


def test_the_csv_holds_the_numbers_of_the_command(root: Client) -> None:
    asked: dict[str, str | int] = {
        "agent": "michael",
        "baseline": run_of("michael", "40").pk,
        "candidate": run_of("michael", "41").pk,
    }
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command(
            "compare",
            "--runs",
            str(asked["baseline"]),
            str(asked["candidate"]),
            "--json",
            stdout=out,
            stderr=StringIO(),
        )
    command = json.loads(out.getvalue())

    rows = list(csv.DictReader(StringIO(compare(root, **asked, export="csv"))))
    dimensions = command["comparisons"][0]["dimensions"]
    assert {row["proposition"] for row in rows} == {"", *(p for d in dimensions.values() for p in d["propositions"])}
    for row in rows:
        named = dimensions[row["dimension"]]
        named = named["propositions"][row["proposition"]] if row["proposition"] else named
        assert row["verdict"] == named["verdict"]
        assert (row["delta"].lstrip("'") or None) == (None if named["delta"] is None else str(named["delta"]))
        assert row["heuristic"] == "True"


def test_an_unevaluated_build_is_named_with_the_page_that_evaluates_it(root: Client) -> None:
    html = compare(root, agent="michael", baseline="build=40", candidate="build=42")
    link = next(url for url in re.findall(r'href="([^"]+)"', html) if "evaluate" in url and "tag=" in url)

    assert "build=42 have not been evaluated" in plain(html)
    assert parse_qs(urlsplit(link).query) == {"tag": ["build=42"]}
    both = compare(root, agent="michael", baseline="build=43", candidate="build=42")
    assert "tag=build%3D42&amp;against=build%3D43" in both
    assert "tag=" not in compare(signed_in(viewer()), agent="michael", candidate="build=42"), "viewers measure nothing"
    assert "has no baseline" in plain(compare(root, agent="jim"))


def test_what_does_not_compare_says_why(root: Client) -> None:
    michael, other = run_of("michael", "40"), run_of("pam", "41")
    assert "is of michael" in plain(compare(root, baseline=michael.pk, candidate=other.pk))

    EvaluationRun.objects.filter(pk=run_of("michael", "41").pk).update(judge="claude-haiku-4-5")
    html = compare(root, baseline=michael.pk, candidate=run_of("michael", "41").pk)
    assert "scores of different judges do not compare" in plain(html)
    assert not verdicts(html)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"baseline": "999999"}, "There is no evaluation 999999"),
        ({"candidate": "build"}, "is no tag"),
        ({"candidate": HOSTILE}, "is no tag"),
        ({"baseline": "build=40", "candidate": "build=40"}, "nothing to compare"),
        ({"agent": "nobody"}, "Select a valid choice"),
    ],
)
def test_what_cannot_be_read_is_named(root: Client, asked: dict[str, str], problem: str) -> None:
    html = compare(root, **{"agent": "michael", **asked})

    assert problem in plain(html)
    assert HOSTILE not in html


def test_two_evaluations_are_ticked_in_the_list(root: Client) -> None:
    def tick(*runs: EvaluationRun) -> object:
        return root.post(
            list_of(EvaluationRun), {"action": "compare", "_selected_action": [run.pk for run in runs]}, follow=True
        )

    first, second = run_of("michael", "40"), run_of("michael", "41")
    html = tick(second, first).content.decode()  # type: ignore[attr-defined]
    assert verdicts(html)["michael-dry"] == "drifted"
    assert "Tick two evaluations" in plain(tick(first).content.decode())  # type: ignore[attr-defined]


def test_evaluation_agent_and_overview_lead_to_it(root: Client) -> None:
    where = reverse("admin:evaluation_evaluationrun_compare")
    for page in (
        page_of(run_of("michael", "41")),
        page_of(Agent.objects.get(slug="michael")),
        reverse("admin:evaluation_drift_overview"),
    ):
        links = [link.replace("&amp;", "&") for link in re.findall(rf'href="({where}[^"]*)"', read(root, page))]
        assert any(verdicts(read(root, link)).get("michael-dry") == "drifted" for link in links), page


def test_messages_need_permission_to_read_them_and_the_page_to_see_evaluations(
    root: Client,
) -> None:
    reader = signed_in(staff("evaluation.view_evaluationrun", username="counts"))
    html = compare(reader, agent="michael")

    assert verdicts(html)["michael-dry"] == "drifted"
    assert "blockquote" in compare(root, agent="michael")
    assert "blockquote" not in html
    assert signed_in(staff(username="nobody")).get(reverse("admin:evaluation_evaluationrun_compare")).status_code == 403


def test_hits_on_one_side_come_first_with_their_messages(
    root: Client, propositions: PropositionFolder, settings: Settings
) -> None:
    settings.JUDGE_MODEL = OFFLINE
    nora = own_bot(propositions)
    for build in ("7", "8"):
        capture([RunSpec(agent=nora, where={"build": build}, dimensions=("adherence",), samples=50)])
    asked = {"agent": "nora", "baseline": "build=7", "candidate": "build=8"}

    html = compare(root, **asked)
    first = plain(html.partition("Every proposition")[0])
    hidden = compare(signed_in(staff("evaluation.view_evaluationrun", username="numbers")), **asked)

    for part in (
        "worse",
        "hits against it in 7 of 24 messages now",
        "Dear customer",
        "write rules or cues for kind, warm",
    ):
        assert part in first, part
    assert verdicts(html)["stock"] == "drifted"
    assert "hits against it in 7 of 24 messages now" in plain(hidden)
    assert "Dear customer" not in hidden
