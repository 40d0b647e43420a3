"""What the gate did: its log, a session as a timeline, notes in conversations."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agents.admin.transcript import transcript_url
from agents.models import Message, Run
from correction.models import CorrectionLog, GateDimensionResult, ObservedMessage
from tests.console import list_of, page_of, plain, queries, read, signed_in, staff, superuser, tab_of
from tests.correction.judged_drafts import corrected, make_log
from tests.evaluation.judged import cells
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


def test_an_attempt_is_listed_with_its_verdicts_against_their_thresholds(root: Client) -> None:
    ada = make_agent()
    message = corrected(ada)
    make_log(ada, {"adherence": 3.5}, source="observe", outcome="observed", message=message, text="Seen later.")
    html = read(root, list_of(CorrectionLog))

    assert cells(html, "outcome_mark") == ["observed", "forced through said", "forced through this draft: sent back"]
    verdicts = [unescape(cell) for cell in cells(html, "verdicts")]
    assert verdicts[0] == "✗ failed: adherence 3.5 < 5"
    assert verdicts[2] == "✗ failed: adherence 2 < 5 – consistency too late ✓ passed: fluency 7 ≥ 5"
    assert cells(html, "who") == ["A Ada"] * 3
    assert cells(html, "place")[0] == "observed"
    assert cells(html, "draft") == ["Seen later.", "Noted.", "Hooray!"]
    assert "attempt 2" in cells(html, "when")[1]


def test_the_log_is_filtered_by_what_people_look_for(root: Client) -> None:
    ada, bob = make_agent(), make_agent("bob")
    old = make_log(ada, {"adherence": 9.0})
    CorrectionLog.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=9))
    failed = make_log(bob, {"fluency": 2.0, "adherence": 8.0}, outcome="forced_through", source="external")
    GateDimensionResult.objects.filter(log=failed, dimension="fluency").update(mark="false_alarm")
    make_log(ada, {"adherence": 1.0}, outcome="corrected")

    def got(query: str) -> int:
        return len(cells(read(root, list_of(CorrectionLog, f"?{query}")), "outcome_mark"))

    yesterday, last_week = (str((timezone.now() - timedelta(days=days)).date()) for days in (1, 8))
    assert got("outcome__exact=forced_through") == 1
    assert got(f"session__agent__id__exact={ada.pk}") == 2
    assert got("session__source__exact=external") == 1
    assert [got(f"failed={value}") for value in ("any", "fluency", "consistency")] == [2, 1, 0]
    assert [got(f"mark={value}") for value in ("any", "right", "none")] == [1, 0, 1]
    assert got(f"created_at_from={yesterday}") == 2
    assert got(f"created_at_to={last_week}") == 1
    assert got(f"created_at_from={last_week}&created_at_to={yesterday}") == 0
    assert got("created_at_from=nonsense&created_at_to=0001-01-01") == 3
    assert got(f"session={failed.session.uuid}") == 1
    assert got("session=nonsense") == 0


def test_a_session_reads_as_a_timeline(root: Client) -> None:
    message = corrected(make_agent())
    log = CorrectionLog.objects.get(session__message=message, attempt=1)
    CorrectionLog.objects.filter(pk=log.pk).update(original_text="Hooray, dear friends!")
    html = read(root, page_of(log))
    text = plain(html)

    assert text.index("Attempt 1 sent back") < text.index("Attempt 2 forced through said")
    assert "As the agent wrote it Hooray, dear friends! As it was judged Hooray!" in text
    assert "✗ failed: adherence 2 < 5" in text
    assert "– consistency too late" in text
    assert "Feedback to the agent Drier." in text
    assert "short 0 scored rule" in text
    assert "<del>Hooray!</del><ins>Noted.</ins>" in re.sub(r"</del><del>|</ins><ins>", "", html)
    assert transcript_url(message).replace("&", "&amp;") in html
    assert f"work_id=gate_session%3A{log.session.uuid}" in html
    assert log.session.run is not None
    assert page_of(log.session.run) in html


def test_a_session_that_was_forced_through_says_so_on_every_page(root: Client) -> None:
    """The second of three failing drafts was the best and was sent: its own row says *sent back*."""
    ada, channel = make_agent(), make_channel()
    message = say(channel, ada, "The better one.")
    run = Run.objects.create(agent=ada, channel=channel, status="completed")
    session: dict[str, Any] = {"session": uuid.uuid4(), "message": message, "channel": channel, "run": run}
    make_log(ada, {"adherence": 2.0}, text="One.", outcome="corrected", attempt=1, **session)
    said = make_log(
        ada, {"adherence": 4.0}, text=message.text, outcome="corrected", attempt=2, committed=True, **session
    )
    make_log(ada, {"adherence": 1.0}, text="Three.", outcome="forced_through", attempt=3, **session)

    page, listed = read(root, page_of(said)), read(root, list_of(CorrectionLog))
    title = re.search(r"<title>(.*?)</title>", page, flags=re.S)
    assert title is not None
    assert "gate session: forced through" in title.group(1)
    assert "Outcome forced through" in plain(page)
    assert "Attempt 2 forced through said" in plain(page)
    assert "Attempt 3 not sent" in plain(page)
    assert [cell.startswith("forced through") for cell in cells(listed, "outcome_mark")] == [True] * 3
    assert cells(listed, "outcome_mark")[1] == "forced through said"
    assert "forced through" in plain(read(root, page_of(message)))
    for place in (page_of(run), tab_of(ada, "gate")):
        text = plain(read(root, place))
        assert re.search(r"attempt 2\s+forced through\s+said", text)
        assert not re.search(r"attempt 1\s+sent back\s+said", text)


def test_an_external_check_has_no_agent_and_is_shown_all_the_same(root: Client) -> None:
    log = make_log(None, {"adherence": 2.0}, source="external", speaker="Ada <b>", tags={"build": "41"})

    page = plain(read(root, page_of(log)))
    assert "said elsewhere, if at all" in page
    assert "Ada <b>" in page
    assert "build=41" in page
    assert cells(read(root, list_of(CorrectionLog)), "place") == ["external"]
    assert cells(read(root, list_of(CorrectionLog)), "who") == ["Ada &lt;b&gt;"]


# -- in conversations
def test_messages_wear_what_the_gate_did_to_them(root: Client) -> None:
    ada, channel = make_agent(), make_channel()
    outcomes = ("passed", "timeout_passed", "observed")
    for outcome in outcomes:
        message = say(channel, ada, f"{outcome}.")
        scores = {"adherence": 4.0 if outcome == "observed" else 8.0}
        source = "observe" if outcome == "observed" else "gate"
        make_log(ada, scores, outcome=outcome, message=message, committed=True, source=source)
    message, session = say(channel, ada, "Retried."), uuid.uuid4()
    for attempt in (1, 2):
        make_log(ada, {"adherence": 1.0}, outcome="corrected", message=message, session=session, attempt=attempt)
    last = make_log(
        ada,
        {"adherence": 8.0},
        outcome="passed_after_retry",
        message=message,
        session=session,
        attempt=3,
        committed=True,
    )
    say(channel, ada, "Nobody looked at this.")
    html = read(root, page_of(channel, "transcript"))

    notes = [plain(note) for note in re.findall(r'<span class="pl-gate-note">.*?</a></span>', html, flags=re.S)]
    assert notes == [
        "passed gate",
        "timed out gate",
        "observed ✗ failed: adherence 4 < 5 gate",
        "passed after retry gate, 3 attempts",
    ]
    assert page_of(last) in html
    assert "passed after retry" in read(root, page_of(message))
    assert "<h2>Gate</h2>" not in read(root, page_of(Message.objects.latest("pk")))


def test_observed_messages_are_named_by_number_as_their_texts_need_another_right() -> None:
    message = say(make_channel(), make_agent(), "A SECRET")
    observed = ObservedMessage.objects.create(message=message, dimensions=["fluency"], session=uuid.uuid4())
    visitor = signed_in(staff("correction.view_observedmessage"))

    for url in (list_of(ObservedMessage), page_of(observed)):
        html = read(visitor, url)
        assert f"message {message.position}" in html
        assert "SECRET" not in html


def test_who_may_view_messages_reads_observed_ones_and_is_led_to_their_place(root: Client) -> None:
    message = say(make_channel(), make_agent(), "Half past four.")
    observed = ObservedMessage.objects.create(message=message, dimensions=["fluency"], session=uuid.uuid4())

    for url in (list_of(ObservedMessage), page_of(observed)):
        html = read(root, url)
        assert "Half past four." in html
        assert transcript_url(message) in html


def test_a_long_session_needs_no_more_queries_than_a_short_one(root: Client) -> None:
    ada, session, person = make_agent(), uuid.uuid4(), User.objects.create_user("grace")
    first = make_log(ada, {"adherence": 1.0, "fluency": 2.0}, session=session, outcome="corrected")
    GateDimensionResult.objects.update(mark="right", marked_by=person, marked_at=timezone.now())
    few = len(queries(root, page_of(first)))
    for attempt in range(2, 12):
        make_log(ada, {"adherence": 1.0, "fluency": 2.0}, session=session, attempt=attempt, outcome="corrected")
    GateDimensionResult.objects.update(mark="right", marked_by=person, marked_at=timezone.now())

    assert len(queries(root, page_of(first))) == few


def test_notes_take_constant_queries(root: Client) -> None:
    ada, channel = make_agent(), make_channel()

    def add(number: int) -> None:
        for n in range(number):
            message, session = say(channel, ada, f"Noted {n}."), uuid.uuid4()
            make_log(ada, {"adherence": 2.0, "fluency": 7.0}, outcome="corrected", message=message, session=session)
            make_log(ada, {"adherence": 7.0}, message=message, session=session, attempt=2, committed=True)
        GateDimensionResult.objects.filter(passed=False).update(mark="right", marked_by=superuser(f"u{number}"))

    add(2)
    few = queries(root, page_of(channel, "transcript"))
    add(5)
    many = queries(root, page_of(channel, "transcript"))

    assert len(many) == len(few), "\n".join(many)


def test_a_session_shows_how_long_each_attempt_took(root: Client) -> None:
    log = CorrectionLog.objects.get(session__message=corrected(make_agent()), attempt=1)
    text = plain(read(root, page_of(log)).partition("pl-waterfall")[2].partition("</section>")[0])

    assert "How long it took attempt judging" in text
    assert text.index("Attempt 1 sent back") < text.index("consistency too late") < text.index("Attempt 2 forced")
    assert "Between the attempts the agent wrote its next draft." in text
