"""Beside a message: what the gate did to it, opened to its drafts and verdicts, which are marked there."""

from __future__ import annotations

import re
import uuid
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.urls import reverse

from agents.models import Channel, Message, Run
from correction.admin import sessions
from correction.models import CorrectionLog, GateDimensionResult, InterventionLog
from tests.console import HOSTILE, Browser, list_of, page_of, plain, queries, read, signed_in, staff, superuser, viewer
from tests.correction.judged_drafts import corrected, make_log, verdict
from tests.evaluation.judged import cells
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


def note_of(html: str, position: int) -> str:
    """The note beside a message, whether opened or not."""
    got = re.search(rf'<details class="pl-gate" id="gate-{position}".*?\n</details>', html, flags=re.S)
    assert got is not None, f"message {position} has no note"
    return got.group()


def transcript(message: Message, **query: object) -> str:
    assert message.channel is not None
    return page_of(message.channel, "transcript") + (f"?{urlencode(query)}" if query else "")


def test_a_note_opens_to_the_drafts_what_was_found_and_what_changed(root: Client) -> None:
    message = corrected(make_agent(), text="Hooray, it is done!", said="It is done.", feedback="Drier, please.")
    note = note_of(read(root, transcript(message)), message.position)
    text = plain(note)

    assert text.startswith("forced through ✗ failed: adherence 4 < 5 gate Attempt 1 sent back 900 ms of judging")
    assert "Hooray, it is done! From this draft to what was said" in text
    assert "<del>Hooray, it </del><ins>It </ins>" in re.sub(r"</del><del>|</ins><ins>", "", note)
    assert "– consistency too late" in text
    assert "✓ passed: fluency 7 ≥ 5" in text
    assert "Recommended:" in text
    assert "Feedback to the agent Drier, please." in text
    assert "Attempt 2 forced through said" in text
    assert text.count("It is done.") == 0  # what was said stands above the note
    assert page_of(CorrectionLog.objects.get(message=message, attempt=2)) in note


def test_a_verdict_is_marked_in_the_conversation_and_the_page_comes_back_to_it(root: Client) -> None:
    message = corrected(make_agent())
    result = verdict(CorrectionLog.objects.get(message=message, attempt=1))
    html = read(root, transcript(message))
    button = re.search(rf'formaction="({reverse("admin:correction_mark", args=[result.pk])}[^"]*)" form="marks"', html)
    assert button is not None
    assert '<form id="marks" method="post">' in html
    answer = root.post(button.group(1), {"mark": "right"})

    assert answer["Location"] == f"{transcript(message, at=message.position, opened='gate')}#result-{result.pk}"
    result.refresh_from_db()
    assert result.mark == "right"
    html = read(root, answer["Location"])
    assert f'id="gate-{message.position}" open' in html
    assert "Marked right root" in plain(note_of(html, message.position))


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:alert(1)", ""])
def test_a_mark_leads_nowhere_else(root: Client, elsewhere: str) -> None:
    log = make_log(make_agent(), {"adherence": 2.0})
    url = f"{reverse('admin:correction_mark', args=[verdict(log).pk])}?{urlencode({'next': elsewhere})}"

    assert root.post(url, {"mark": "right"})["Location"] == f"{page_of(log)}#result-{verdict(log).pk}"


def test_only_who_may_mark_sees_the_buttons() -> None:
    message = corrected(make_agent())
    seen = read(signed_in(viewer()), transcript(message))
    careful = Browser(enforce_csrf_checks=True)
    careful.force_login(superuser("careful"))
    result = verdict(CorrectionLog.objects.get(message=message, attempt=1))

    assert "forced through" in seen
    assert 'name="mark"' not in seen
    assert careful.post(reverse("admin:correction_mark", args=[result.pk]), {"mark": "right"}).status_code == 403
    assert verdict(result.log).mark == ""


def test_a_page_compares_a_few_drafts_and_names_the_session_of_the_others(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_DIFFS", 2)
    ada, channel = make_agent(), make_channel()
    messages = [say(channel, ada, "Noted.") for _ in range(3)]
    logs = [make_log(ada, {"adherence": 2.0}, text="Hooray!", message=m, outcome="corrected") for m in messages]
    html = read(root, page_of(channel, "transcript"))

    assert html.count("From this draft to what was said") == 2
    note = note_of(html, 3)
    assert "as there is much on this page: both texts are in the session" in plain(note)
    assert f'href="{page_of(logs[2])}"' in note
    assert "From this draft" in read(root, page_of(messages[2])), "each page has its own"


def test_many_small_words_are_too_many_to_compare(root: Client) -> None:
    ada, channel = make_agent(), make_channel()
    message = say(channel, ada, "a b " * 200)
    make_log(ada, {"adherence": 2.0}, text="b a " * 300, message=message, outcome="corrected")
    assert "From this draft" in note_of(read(root, transcript(message)), 1)
    CorrectionLog.objects.update(judged_text="b,a," * 1000)

    assert "Too long to compare here: both texts are in the session" in plain(
        note_of(read(root, transcript(message)), 1)
    )


def test_a_page_of_notes_needs_as_many_queries_as_a_page_with_few(root: Client) -> None:
    ada, channel = make_agent(), make_channel()

    def add(number: int) -> None:
        for n in range(number):
            message, session = say(channel, ada, f"Noted {n}."), uuid.uuid4()
            make_log(ada, {"adherence": 2.0, "fluency": 7.0}, outcome="corrected", message=message, session=session)
            make_log(ada, {"adherence": 7.0}, message=message, session=session, attempt=2, committed=True)
        GateDimensionResult.objects.filter(passed=False).update(mark="right", marked_by=superuser(f"u{number}"))

    add(2)
    few = queries(root, page_of(channel, "transcript"))
    add(40)
    many = queries(root, page_of(channel, "transcript"))

    assert len(many) == len(few), "\n".join(many)


# -- what the gate did, as filters and on the pages of turns
def outcomes_in(channel: Channel) -> None:
    ada = make_agent()
    for outcome in ("passed", "forced_through", "observed", "timeout_passed"):
        run = Run.objects.create(agent=ada, channel=channel, prompt=outcome)
        message = say(channel, ada, outcome, run=run)
        make_log(ada, {"adherence": 8.0}, outcome=outcome, message=message, run=run, committed=True)
    say(channel, ada, "nobody looked")
    Run.objects.create(agent=ada, channel=channel, prompt="nobody looked")


@pytest.mark.parametrize(
    ("chosen", "got"),
    [
        ("passed", {"passed"}),
        ("forced", {"forced_through"}),
        ("observed", {"observed"}),
        ("unchecked", {"timeout_passed"}),
        ("seen", {"passed", "forced_through", "observed", "timeout_passed"}),
        ("corrected", set()),
    ],
)
def test_messages_and_turns_are_found_by_what_the_gate_did(root: Client, chosen: str, got: set[str]) -> None:
    outcomes_in(make_channel())

    assert set(cells(read(root, list_of(Message, f"?gate={chosen}")), "text")) == got
    assert set(cells(read(root, list_of(Run, f"?gate={chosen}")), "answers")) == got


def test_a_session_shows_how_long_each_attempt_took(root: Client) -> None:
    log = CorrectionLog.objects.get(message=corrected(make_agent()), attempt=1)
    text = plain(read(root, page_of(log)).partition("pl-waterfall")[2].partition("</section>")[0])

    assert "How long it took attempt judging" in text
    assert text.index("Attempt 1 sent back") < text.index("consistency too late") < text.index("Attempt 2 forced")
    assert "Between the attempts the agent wrote its next draft." in text


def test_a_turn_names_the_interventions_that_were_looked_at(root: Client) -> None:
    run = Run.objects.create(agent=make_agent(), channel=make_channel())
    InterventionLog.objects.create(name="variety", run=run, fired=True, nudge=f"Say something new. {HOSTILE}")
    InterventionLog.objects.create(name="anti_convergence", run=run, fired=False, why="they do not agree")
    html = read(root, page_of(run))

    assert "Interventions variety fired Say something new." in plain(html)
    assert "anti convergence did not fire they do not agree" in plain(html)
    assert "<script>alert" not in html
    half = signed_in(staff("agents.view_run", "correction.view_correctionlog"))
    assert "they do not agree" not in read(half, page_of(run))
