"""The console is short: relative times, a judge said once, one line for a capture."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agents.kit.console.display import exact_moment, json_block, moment
from agents.kit.registry import tables
from agents.kit.text.wording import day_text
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore
from tests.console import list_of, page_of, plain, read, signed_in, superuser, viewer
from tests.evaluation.judged import LLM, OFFLINE, make_run, make_score
from tests.factories import make_agent, make_channel

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("ago", "shown"),
    [
        (timedelta(seconds=20), "just now"),
        (timedelta(minutes=5, seconds=3), "5 min ago"),
        (3.5 * HOUR, "3 h ago"),
        (47 * HOUR, "47 h ago"),
        (50 * HOUR, "2 d ago"),
        (-2.5 * HOUR, "in 2 h"),
    ],
)
def test_times_show_their_age_and_in_titles_the_exact_time_and_zone(ago: timedelta, shown: str) -> None:
    at = timezone.now() - ago
    html = moment(at)

    assert plain(html) == shown
    assert f'title="{day_text(at)}, {timezone.localtime(at):%H:%M:%S} UTC"' in html
    assert f"({shown})" in plain(exact_moment(at))


def test_beyond_a_week_times_are_days_and_pages_add_the_minute() -> None:
    at = datetime(2019, 3, 9, 14, 30, tzinfo=UTC)

    assert (plain(moment(at)), plain(exact_moment(at))) == ("9 Mar 2019", "9 Mar 2019, 14:30")


def head_of(html: str) -> str:
    return html.partition("<table")[2].partition("</thead>")[0]


def test_a_short_list_of_names_is_shown_as_lines_and_anything_else_as_json() -> None:
    assert plain(json_block(["food_log", "general"])).split() == ["food_log", "general"]
    assert plain(json_block([1, 2])).startswith("[")
    assert plain(json_block({"a": "b"})).startswith("{")


@pytest.mark.django_db
def test_a_list_says_one_judge_once_and_several_in_a_column() -> None:
    client, url = signed_in(viewer()), list_of(EvaluationRun)
    for name in ("ada", "bob"):
        make_run(make_agent(name), judge=OFFLINE)
    one_judge = read(client, url)
    make_run(make_agent("eve"), judge=LLM)

    assert one_judge.count("pl-judge") == 1
    assert "heuristic" in plain(one_judge)
    assert "Judge" not in plain("<" + head_of(one_judge)).split()
    assert "Judge" in plain("<" + head_of(read(client, url))).split()


@pytest.mark.django_db
def test_exact_rules_do_not_hide_that_all_other_scores_have_one_judge() -> None:
    run = make_run(make_agent(), judge=OFFLINE)
    make_score(run, 9, judge="rule")
    make_score(run, 8)
    make_score(run, 7)

    assert read(signed_in(viewer()), list_of(EvaluationScore)).count("pl-judge") == 1


@pytest.mark.django_db
def test_a_captures_channels_are_one_line_in_lists_and_all_in_files() -> None:
    whole = make_run(make_agent(), dimensions=["adherence"])
    parts = [
        EvaluationRun.objects.create(channel=make_channel(f"room-{n}"), judge=LLM, dimensions=["convergence"])
        for n in range(3)
    ]
    for part in parts:
        ChannelShare.objects.create(agent_run=whole, channel_run=part, messages=2)
    alone = EvaluationRun.objects.create(channel=make_channel("alone"), judge=LLM, dimensions=["convergence"])
    client = signed_in(superuser())

    def listed(url: str) -> set[int]:
        return {int(key) for key in re.findall(r"/evaluationrun/(\d+)/change/", read(client, url))}

    newest = read(client, list_of(EvaluationRun))
    assert listed(list_of(EvaluationRun)) == {whole.pk, alone.pk}
    assert f'href="{list_of(EvaluationRun)}?part_of={whole.pk}"' in newest
    assert "with 3 channels" in plain(newest)
    assert listed(list_of(EvaluationRun, f"?part_of={whole.pk}")) == {part.pk for part in parts}
    assert listed(list_of(EvaluationRun, "?part_of=nonsense")) == set()
    exported = client.get(reverse("admin:evaluation_evaluationrun_export", args=["csv"]))
    assert len(b"".join(exported).splitlines()) == 1 + 5


def title_of(html: str) -> str:
    return plain(html.partition("<title>")[2].partition("</title>")[0])


@pytest.mark.django_db
def test_a_browser_tab_is_named_after_what_its_page_shows(root: Client) -> None:
    for table in tables().values():
        if admin.site.is_registered(table.model):
            assert title_of(read(root, list_of(table.model))) == f"{table.name} | Plumbline"
    agent = make_agent()
    for row, name in ((agent, "Agent"), (make_run(agent), "Evaluation"), (viewer(), "User")):
        assert title_of(read(root, page_of(row))) == f"{row} | {name} | Plumbline"
