"""The review queue: everything that waits for a decision on one page, decided there, and taken back."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from agents.alerts.models import Alert
from agents.alerts.raising import raise_alert
from agents.alerts.resolving import resolve
from agents.kit.alerting import AlertKind
from agents.kit.models import ReviewItem
from agents.models import Agent, Channel, Run
from correction.behavior.models import BehaviorRequest
from correction.models import CorrectionLog, GateDimensionResult
from evaluation.change.models import DriftAlert
from evaluation.change.over_time import look_for_sharp_fall
from evaluation.propositions.entries import all_entries
from tests.console import HOSTILE, list_of, page_of, plain, queries, read, signed_in, staff, superuser, viewer
from tests.correction.behavior.proposals import proposed
from tests.correction.judged_drafts import make_log, verdict
from tests.evaluation.change.measured import capture, measure
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import make_run
from tests.evaluation.test_admin_home import alert
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db

QUEUE = "/admin/review/"
MARKING = "correction.change_gatedimensionresult"


@pytest.fixture
def ada() -> Agent:
    return make_agent()


@pytest.fixture(autouse=True)
def team(settings: Settings, tmp_path: Path) -> PropositionFolder:
    """A folder of propositions, empty at first."""
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    shipped.mkdir()
    own.mkdir()
    settings.PROPOSITIONS_DIR, settings.PROPOSITION_DIRS = shipped, [own]
    return PropositionFolder(own)


def failed_turn(agent: Agent, error: str = "It broke.", *, days_ago: float = 0) -> Run:
    run: Run = Run.objects.create(agent=agent, status="failed", error=error)
    Run.objects.filter(pk=run.pk).update(created_at=timezone.now() - timedelta(days=days_ago))
    return run


def alarm(agent: Agent, text: str = "A draft.") -> GateDimensionResult:
    return verdict(make_log(agent, {"adherence": 2}, text=text))


def fallen(agent: Agent) -> None:
    """Have build 41 make an agent worse than its baseline, with the alert."""
    capture(agent, {"dry": [8, 7, 8, 9, 8, 7, 8, 8, 9, 8]})
    assert look_for_sharp_fall(measure(agent, {"dry": [4, 3, 4, 5, 4, 3, 4, 4, 5, 4]}))


def form_of(html: str, decide: str) -> dict[str, str]:
    """The fields of the open item's form, with the button for a decision pressed."""
    form = html.split('class="pl-deciding"')[1].split("</form>")[0]
    assert f'name="decide" value="{decide}"' in form
    return hidden_fields(form) | {"decide": decide}


def hidden_fields(html: str) -> dict[str, str]:
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', html))


def decide(client: Client, decision: str, **filters: Any) -> str:
    """Decide about the item that the queue opens, and return the page that follows."""
    url = f"{QUEUE}?{urlencode(filters)}"
    return after(client, form_of(read(client, url), decision), url)


def after(client: Client, data: dict[str, str], url: str = QUEUE) -> str:
    return str(client.post(url, data, follow=True).content.decode())


def undo(client: Client, html: str) -> str:
    form = html.split("pl-revealed")[1].split("</form>")[0]
    button = re.search(r'name="undo" value="(\w+)"', form)
    assert button is not None
    return after(client, {**hidden_fields(form), "undo": button[1]})


def test_all_that_waits_is_on_one_page_and_counted_on_the_first(
    root: Client, ada: Agent, team: PropositionFolder
) -> None:
    alert(ada)
    proposed(ada)
    alarm(ada)
    failed_turn(ada)
    team.claims("adherence/ada.yaml", "dry", extra="active: false")
    text = plain(read(root, QUEUE))

    assert "All 5 Alerts 1 Behaviour requests 1 Alarms of the gate 1 Suggestions 1 Failures 1" in text
    assert "1 of 5" in text
    home = read(root, reverse("admin:index"))
    for kind in ("alerts", "requests", "alarms", "suggestions", "failures"):
        assert f'href="{QUEUE}?kind={kind}"' in home


def test_an_empty_queue_says_what_comes_there_and_a_filter_leads_back(root: Client, ada: Agent) -> None:
    text = plain(read(root, QUEUE))
    assert "Nothing waits for you" in text
    assert "drafts that failed a check of the gate" in text

    assert f'href="{QUEUE}"' in read(root, f"{QUEUE}?kind=alerts&agent=ada")


def test_examples_wait_only_without_agents_of_the_team_and_synthetic_talk_never(
    root: Client, team: PropositionFolder
) -> None:
    kelly = make_agent("kelly", origin="seed")
    alert(kelly)
    proposed(kelly)
    alarm(kelly)
    failed_turn(kelly)
    team.claims("adherence/kelly.yaml", "dry", extra="active: false")
    played = make_channel("played")
    Channel.objects.filter(pk=played.pk).update(synthetic=True)
    make_log(kelly, {"adherence": 2}, channel=played)
    Run.objects.filter(pk=failed_turn(kelly).pk).update(channel=played)
    every_kind_once = "All 5 Alerts 1 Behaviour requests 1 Alarms of the gate 1 Suggestions 1 Failures 1"
    assert every_kind_once in plain(read(root, QUEUE))

    make_agent("bob")
    assert "Nothing waits for you" in plain(read(root, QUEUE))
    assert f"{QUEUE}?kind=" not in read(root, reverse("admin:index"))


# -- deciding, and taking back
def test_an_acknowledged_alert_is_gone_until_that_is_undone(root: Client, ada: Agent) -> None:
    alert(ada)
    html = after(root, form_of(read(root, QUEUE), "acknowledge") | {"note": "I look at it"})

    row = Alert.objects.get()
    assert (row.acknowledged_by, row.note) == (User.objects.get(), "I look at it")
    assert "Nothing waits for you" in html
    html = undo(root, html)
    assert Alert.objects.filter(acknowledged_at=None, acknowledged_by=None).exists()
    assert "1 of 1" in plain(html)


def test_the_card_of_an_alert_shows_the_change_with_messages_from_then_and_now(root: Client, ada: Agent) -> None:
    fallen(ada)
    shown = plain(read(root, QUEUE))

    assert "No longer “dry”: 8.0 → 4.0 since build 41." in shown
    assert "Baseline 9 of 9" in shown
    assert "Now 3 of 9" in shown
    assert "Build build=41" in shown
    for page in (Alert.objects.get(), DriftAlert.objects.get()):
        assert "Now 3 of 9" in plain(read(root, page_of(page)))

    operator = staff("alerts.change_alert", "alerts.view_alert", "change.view_baseline", "agents.view_agent")
    without_words = plain(read(signed_in(operator), QUEUE))
    assert "8.0 → 4.0 since build 41" in without_words
    assert "3 of 9" not in without_words


def test_an_alert_without_a_stored_change_says_why_it_shows_nothing(root: Client, ada: Agent) -> None:
    alert(ada)

    assert "the agent had no baseline" in plain(read(root, QUEUE))


def test_many_alerts_need_no_more_statements_than_two(root: Client) -> None:
    for name in ("ada", "bob"):
        fallen(make_agent(name))
    few = len(queries(root, f"{QUEUE}?kind=alerts"))
    for number in range(5):
        fallen(make_agent(f"agent-{number}"))

    assert len(queries(root, f"{QUEUE}?kind=alerts")) == few <= 40


def test_all_alerts_of_a_build_are_acknowledged_with_one_button_and_taken_back(root: Client, ada: Agent) -> None:
    other = raise_alert(kind="drift", about="x", title="It fell before", agent=ada, build="build=40")
    for name in "abc":
        raise_alert(kind="drift", about=name, title=f"It fell {name}", agent=ada, build="build=41")
    html = read(root, QUEUE)
    assert "Acknowledge all 3 of build 41" in plain(html)
    html = after(root, form_of(html, "acknowledge_build") | {"note": "rolling back"})

    assert set(Alert.objects.filter(note="rolling back").values_list("about", flat=True)) == {"a", "b", "c"}
    assert "Acknowledge all" not in plain(html), "the other build has one alert alone"
    undo(root, html)
    assert Alert.objects.filter(acknowledged_at=None).count() == 4

    alert_page = page_of(other)
    assert "Acknowledge all" not in plain(read(root, alert_page))
    last = Alert.objects.get(about="a")
    root.post(page_of(last, "acknowledge_build"), hidden_fields(read(root, page_of(last))))
    assert "Take all 3 back" in plain(read(root, page_of(last)))
    root.post(page_of(last, "take_back_build"))
    assert Alert.objects.filter(acknowledged_at=None).count() == 4


@pytest.mark.parametrize("door", ["queue", "page"])
def test_all_alerts_of_a_build_are_those_that_the_page_showed(root: Client, ada: Agent, door: str) -> None:
    for name in "ab":
        raise_alert(kind="drift", about=name, title=f"It fell {name}", agent=ada, build="build=41")
    back = raise_alert(kind="drift", about="back", title="It fell", agent=ada, build="build=40")
    resolve(back, user=None)
    alert_page = page_of(Alert.objects.get(about="a"))
    html = read(root, QUEUE if door == "queue" else alert_page)
    raise_alert(kind="drift", about="later", title="It fell later", agent=ada, build="build=41")
    raise_alert(kind="drift", about="back", title="It fell", agent=ada, build="build=41", reopens=back.pk)
    if door == "queue":
        after(root, form_of(html, "acknowledge_build"))
    else:
        root.post(page_of(Alert.objects.get(about="a"), "acknowledge_build"), hidden_fields(html))

    waiting = Alert.objects.filter(acknowledged_at=None)
    assert set(waiting.values_list("about", flat=True)) == {"later", "back"}


def test_an_alert_is_resolved_in_a_build_says_so_and_reopens_with_undo(root: Client, ada: Agent) -> None:
    row = raise_alert(kind="drift", about="a", title="It fell", agent=ada, build="build=41")
    form = form_of(read(root, QUEUE), "resolve")
    refused = after(root, form | {"in_build": "41", "note": "the fix is in"})
    assert "Nothing was changed" in plain(refused)
    assert 'value="the fix is in"' in refused, "what was typed is kept"
    for decision in ("acknowledge", "acknowledge_build"):
        assert "press Resolve" in plain(after(root, form | {"in_build": "42", "decide": decision}))
    html = after(root, form | {"in_build": "42", "note": "fixed"})

    row.refresh_from_db()
    assert (row.resolved_in, row.resolved_by, row.note) == ("build=42", User.objects.get(), "fixed")
    assert "Resolved in build 42" in plain(read(root, page_of(row)))
    assert "1 of 1" in plain(undo(root, html))

    root.post(page_of(row, "resolve_one"))
    assert "resolved in the build after 41" in plain(read(root, list_of(Alert)))
    raise_alert(kind="drift", about="b", title="It fell", agent=ada, build="build=42", reopens=row.pk)
    assert "Reopened: back in build 42." in plain(read(root, QUEUE))
    assert "back in build 42" in plain(read(root, list_of(Alert)))


def test_an_alert_of_no_build_is_only_acknowledged(root: Client, ada: Agent) -> None:
    alert(ada)
    html = read(root, QUEUE)

    assert 'value="acknowledge"' in html
    assert 'value="resolve"' not in html
    assert 'value="acknowledge_build"' not in html
    assert "in_build" not in html + read(root, page_of(Alert.objects.get()))


def test_a_hostile_build_is_text(root: Client, ada: Agent) -> None:
    for name in "ab":
        row = raise_alert(kind="drift", about=name, title="It fell", agent=ada, build=f"build={HOSTILE}")

    for page in (QUEUE, page_of(row), list_of(Alert)):
        html = read(root, page)
        assert HOSTILE not in html
        assert "alert(" in html


def test_an_alarm_is_marked_and_the_mark_taken_back(root: Client, ada: Agent) -> None:
    row = alarm(ada)
    html = decide(root, "false_alarm")

    row.refresh_from_db()
    assert (row.mark, row.marked_by) == ("false_alarm", User.objects.get())
    undo(root, html)
    row.refresh_from_db()
    assert (row.mark, row.marked_by, row.marked_at) == ("", None, None)


def test_a_request_is_applied_and_reverted_rejected_and_opened_again(root: Client, ada: Agent) -> None:
    row = proposed(ada)
    undo(root, decide(root, "apply"))
    row.refresh_from_db()
    assert row.status == "reverted"
    assert not ada.traits.exists()

    other = proposed(ada)
    fields = form_of(read(root, QUEUE), "reject") | {"note": "not her"}
    html = after(root, fields)
    other.refresh_from_db()
    assert other.status == "rejected"
    assert other.why.endswith("rejected: not her")
    undo(root, html)
    other.refresh_from_db()
    assert other.status == "pending_review"


@pytest.mark.parametrize(("decision", "state"), [("accept", "accepted"), ("reject", "rejected")])
def test_a_suggestion_is_decided_in_its_file_and_comes_back_after_undo(
    root: Client, ada: Agent, team: PropositionFolder, decision: str, state: str
) -> None:
    team.claims("adherence/ada.yaml", "dry", extra="active: false")
    html = decide(root, decision)

    assert [entry.state for entry in all_entries()] == [state]
    undo(root, html)
    assert [entry.state for entry in all_entries()] == ["suggested"]


def test_a_suggestion_that_changed_since_it_was_shown_is_not_decided(
    root: Client, ada: Agent, team: PropositionFolder
) -> None:
    team.claims("adherence/ada.yaml", "dry", extra="active: false")
    fields = form_of(read(root, QUEUE), "accept")
    team.claims("adherence/ada.yaml", "dry", extra="active: false, weight: 3")

    assert "It was changed since the page was opened" in after(root, fields)
    assert [entry.state for entry in all_entries()] == ["suggested"]


def test_a_failure_is_dismissed_and_comes_back_with_undo(root: Client, ada: Agent) -> None:
    failed_turn(ada, days_ago=30)
    failed_turn(ada, f"It broke {HOSTILE}")
    html = read(root, QUEUE)
    assert "1 of 1" in plain(html), "what failed long ago is not looked at any more"
    assert HOSTILE not in html

    html = decide(root, "dismiss")
    assert "Nothing waits for you" in html
    assert "1 of 1" in plain(undo(root, html))


def test_a_failed_evaluation_with_an_alert_is_listed_once(root: Client, ada: Agent) -> None:
    run = make_run(ada, status="failed")
    assert "All 1" in plain(read(root, QUEUE))
    raise_alert(kind=AlertKind.EVALUATION_FAILED, about="ada", title="It failed.", agent=ada, page=run)

    assert "All 1 Alerts 1" in plain(read(root, QUEUE))


def test_a_decision_opens_the_next_item_and_after_the_last_the_previous(root: Client, ada: Agent) -> None:
    first, second, third = (alarm(ada, f"draft {n}") for n in "123")
    html = after(root, form_of(read(root, f"{QUEUE}?item=alarms:{second.pk}"), "right"))

    assert "draft 1" in html, "newest first: the one that followed"
    assert "2 of 2" in plain(html)
    html = after(root, form_of(html, "right"))
    assert "draft 3" in html
    assert {row.mark for row in (*GateDimensionResult.objects.filter(pk__in=[first.pk, second.pk]),)} == {"right"}
    assert GateDimensionResult.objects.get(pk=third.pk).mark == ""


# -- two people at one queue


DECISIONS: dict[str, Callable[[Agent], object]] = {
    "dismiss": failed_turn,
    "acknowledge": alert,
    "false_alarm": alarm,
    "reject": proposed,
}


@pytest.mark.parametrize("decision", DECISIONS)
def test_what_a_colleague_decided_first_stays_and_the_second_person_goes_on(
    root: Client, ada: Agent, decision: str
) -> None:
    for _ in range(2):
        DECISIONS[decision](ada)
    colleague = signed_in(superuser("pam"))
    mine, theirs = form_of(read(root, QUEUE), decision), form_of(read(colleague, QUEUE), decision)
    after(colleague, theirs)
    text = plain(after(root, mine))

    assert "Nothing was changed" in text
    assert "1 of 1" in text
    by = [
        *Alert.objects.values_list("acknowledged_by__username", flat=True),
        *GateDimensionResult.objects.values_list("marked_by__username", flat=True),
        *BehaviorRequest.objects.values_list("reviewed_by__username", flat=True),
        *ReviewItem.objects.values_list("dismissed_by__username", flat=True),
    ]
    assert [name for name in by if name] == ["pam"]


def test_undo_does_not_take_back_what_a_colleague_decided_since(root: Client, ada: Agent) -> None:
    row = alarm(ada)
    html = decide(root, "right")
    GateDimensionResult.objects.filter(pk=row.pk).update(mark="false_alarm")
    text = plain(undo(root, html))

    assert "Nothing was changed: it is marked false alarm" in text
    row.refresh_from_db()
    assert row.mark == "false_alarm"


# -- filters and assignment
def test_the_queue_is_narrowed_by_agent_kind_and_assignment_to_me(root: Client, ada: Agent) -> None:
    bob = make_agent("bob")
    alarm(ada)
    mine = alarm(bob)
    failed_turn(bob)
    assert "All 2" in plain(read(root, f"{QUEUE}?agent=bob"))
    assert "1 of 1" in plain(read(root, f"{QUEUE}?agent=bob&kind=alarms"))
    assert "Nothing waits here" in read(root, f"{QUEUE}?mine=1")

    me = User.objects.get()
    html = after(root, {"kind": "alarms", "key": str(mine.pk), "assign": str(me.pk)})
    assert "Assigned to root." in html
    assert "All 1" in plain(read(root, f"{QUEUE}?mine=1"))
    after(root, {"kind": "alarms", "key": str(mine.pk), "assign": ""})
    assert "Nothing waits here" in read(root, f"{QUEUE}?mine=1")


def test_nothing_is_assigned_to_a_person_who_is_not_there(root: Client, ada: Agent) -> None:
    row = alarm(ada)

    for assign in ("999", "x"):
        assert "allowed: an active user" in after(root, {"kind": "alarms", "key": str(row.pk), "assign": assign})
    assert not ReviewItem.objects.exclude(assigned_to=None).exists()


@pytest.mark.parametrize("item", ["alarms:x", "gone:1", "alarms:" + "9" * 40, "failures:agents.run/x"])
def test_an_item_that_is_not_there_is_no_error(root: Client, ada: Agent, item: str) -> None:
    alarm(ada)
    kind, _, key = item.partition(":")

    assert "1 of 1" in plain(read(root, f"{QUEUE}?item={item}&done={item}&did=right&place=7"))
    assert "1 of 1" in plain(after(root, {"kind": kind, "key": key, "decide": "right"}))
    assert "1 of 1" in plain(
        after(root, {"kind": "alarms", "key": str(verdict(CorrectionLog.objects.get()).pk), "decide": "x"})
    )


# -- who may
def test_each_sees_only_what_they_may_decide_and_others_nothing(ada: Agent) -> None:
    row = alarm(ada)
    alert(ada)
    assert signed_in(viewer()).get(QUEUE).status_code == 403

    marker = signed_in(staff(MARKING))
    text = plain(read(marker, QUEUE))
    assert "All 1 Alarms of the gate 1" in text
    assert "Alerts" not in text
    assert marker.post(QUEUE, {"kind": "alarms", "key": str(row.pk), "assign": ""}).status_code == 403
    marker.post(QUEUE, {"kind": "alerts", "key": str(Alert.objects.get().pk), "decide": "acknowledge"})
    assert Alert.objects.get().acknowledged_at is None


def test_words_are_shown_only_to_those_who_may_read_messages(ada: Agent) -> None:
    alarm(ada, f"What she wrote {HOSTILE}")
    assert "What she wrote" not in read(signed_in(staff(MARKING)), QUEUE)

    html = read(signed_in(staff(MARKING, "agents.view_message", username="reader")), QUEUE)
    assert "What she wrote" in html
    assert HOSTILE not in html


def test_the_queue_asks_as_often_for_many_items_as_for_few(root: Client, ada: Agent, team: PropositionFolder) -> None:
    team.claims("adherence/ada.yaml", "dry", extra="active: false")

    def more(number: int) -> None:
        for _ in range(number):
            alert(ada, dimension="adherence")
            proposed(ada)
            alarm(ada)
            failed_turn(ada)

    more(2)
    few = [queries(root, f"{QUEUE}?kind={kind}") for kind in ("", "alerts", "requests", "alarms", "failures")]
    more(5)
    many = [queries(root, f"{QUEUE}?kind={kind}") for kind in ("", "alerts", "requests", "alarms", "failures")]

    assert [len(one) for one in many[1:]] == [len(one) for one in few[1:]]
    assert len(many[0]) <= len(few[0]), "at most as many as where all kinds are listed side by side"


# -- next and previous on the pages of logs
def beside(html: str) -> dict[str, str]:
    named = re.findall(r'href="([^"]*)" data-key="(\w) Arrow', html)
    return {{"k": "previous", "j": "next"}[key]: url.replace("&amp;", "&") for url, key in named}


def test_a_log_entry_leads_to_its_neighbours_in_the_filtered_list(root: Client, ada: Agent) -> None:
    old, middle, new = (make_log(ada, {"adherence": 7}) for _ in range(3))

    assert beside(read(root, page_of(middle))) == {"previous": page_of(new), "next": page_of(old)}
    assert beside(read(root, page_of(new))) == {"next": page_of(middle)}
    assert beside(read(root, page_of(old))) == {"previous": page_of(middle)}

    CorrectionLog.objects.filter(pk=middle.pk).update(outcome="corrected")
    filters = urlencode({"_changelist_filters": "outcome__exact=passed"})
    assert beside(read(root, f"{page_of(new)}?{filters}")) == {"next": f"{page_of(old)}?{filters}"}
    for unreadable in ("created_at__gte=x", "p=x", "q=%00"):
        read(root, f"{page_of(new)}?{urlencode({'_changelist_filters': unreadable})}")
