"""The card "Voice line-up" on a channel's page: measured by a worker, kept as a row, shown with what has been said since."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from agents.kit.models import owner_name
from agents.models import Channel
from evaluation.lineup.measuring import line_up, newest_line_up, queue_line_up, said_since, work_one
from evaluation.lineup.models import LineUpRun
from tests.console import HOSTILE, page_of, read, signed_in, staff, superuser, viewer
from tests.evaluation.conversing import DRY, LEARNED, LOUD, converse, in_turn
from tests.evaluation.lineup.lining_up import VOICES, chat, voices
from tests.factories import make_channel, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def channel() -> Channel:
    """Three voices, five lines each: the first lines of a speaker stand in every stretch of time."""
    return converse(make_channel("trio"), in_turn(DRY * 2, LOUD * 2, LEARNED * 2))


def measure(channel: Channel) -> str:
    return f"/admin/lineup/lineuprun/measure/{channel.pk}/"


def test_a_channel_that_was_not_measured_says_so_and_offers_to(root: Client, channel: Channel) -> None:
    html = read(root, page_of(channel))

    assert "Voice line-up" in html
    assert "Not measured yet" in html
    assert measure(channel) in html


def test_the_button_queues_one_line_up_and_the_page_says_that_it_waits(root: Client, channel: Channel) -> None:
    first = root.post(measure(channel), follow=True).content.decode()
    second = root.post(measure(channel), follow=True).content.decode()

    assert "are queued" in first
    assert "already" in second
    assert "being measured" in second
    assert measure(channel) not in second, "no second one while one waits"
    assert LineUpRun.objects.get().status == "pending"


def test_the_worker_measures_and_the_card_shows_the_figures(root: Client, channel: Channel) -> None:
    queue_line_up(channel=channel)

    assert work_one(owner=owner_name())
    assert not work_one(owner=owner_name())

    html = read(root, page_of(channel))
    made = LineUpRun.objects.get()
    assert made.status == "completed"
    assert f"{100 * made.result['balanced_accuracy']:.0f} %" in html
    assert f"{made.result['p_value']:.3g}" in html
    for voice in made.result["voices"]:
        assert f"<bdi>{voice['speaker']}</bdi>" in html
    assert "since then" not in html


def test_the_card_counts_what_was_said_since(root: Client, channel: Channel) -> None:
    queue_line_up(channel=channel)
    work_one(owner=owner_name())
    say(channel, "Visitor", "Is anybody there?")

    made = newest_line_up(channel)
    assert made is not None
    assert said_since(made) == 1
    assert "1 line since then" in read(root, page_of(channel))


def test_a_channel_of_one_voice_has_no_figure_and_says_why(root: Client) -> None:
    alone = converse(make_channel("alone"), [("ada", text) for text in DRY])
    queue_line_up(channel=alone)
    work_one(owner=owner_name())

    html = read(root, page_of(alone))
    assert "No figure: only one speaker" in html
    assert "not told apart" not in html


def test_names_of_speakers_are_data_not_markup(root: Client) -> None:
    channel = make_channel("guests")
    for _ in range(6):
        say(channel, HOSTILE, "I am here.")
    queue_line_up(channel=channel)
    row = LineUpRun.objects.get()
    work_one(owner=owner_name())
    row.refresh_from_db()
    voice = {"speaker": HOSTILE, "kind": "outsider", "lines": 6, "compared": 6, "recall": 0.5, "chance": 0.5}
    figures = {"balanced_accuracy": 0.5, "chance": 0.5, "chance_high": 0.6, "p_value": 0.4, "distinct": False}
    row.result = {**row.result, **figures, "reason": "", "voices": [{**voice, "taken_for": "\u202ebob", "taken": 3}]}
    row.save()

    html = read(root, page_of(channel))
    assert HOSTILE not in html
    assert "\u202e" not in html
    assert "not told apart from chance" in html


def test_a_line_up_that_crashed_is_errored_and_its_card_says_why(
    root: Client, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_line_up(channel=channel, window="last:20")
    LineUpRun.objects.update(window="nonsense")

    assert work_one(owner=owner_name())

    assert LineUpRun.objects.get().status == "errored"
    html = read(root, page_of(channel))
    assert "is not understood" in html
    assert measure(channel) in html, "it can be asked for again"


def test_a_lost_line_up_is_made_by_the_next_worker(channel: Channel) -> None:
    queue_line_up(channel=channel)
    LineUpRun.objects.update(status="running", lease_owner="elsewhere:1:x", lease_expires_at=None)

    assert work_one(owner=owner_name())
    assert LineUpRun.objects.get().status == "completed"


def test_a_window_that_is_not_understood_is_refused_before_it_is_queued(channel: Channel) -> None:
    with pytest.raises(ValueError, match="'yesterday' is not understood; allowed:"):
        queue_line_up(channel=channel, window="yesterday")
    assert not LineUpRun.objects.exists()


def test_only_who_may_measure_has_a_button_and_only_by_post(channel: Channel) -> None:
    reader = signed_in(viewer())
    outsider = signed_in(staff("agents.view_channel"))

    assert "Voice line-up" in read(reader, page_of(channel))
    assert measure(channel) not in read(reader, page_of(channel))
    assert reader.post(measure(channel)).status_code == 403
    assert "Voice line-up" not in read(outsider, page_of(channel))
    root = signed_in(superuser())
    assert root.get(measure(channel)).status_code == 405
    gone = make_channel("gone")
    gone_url = measure(gone)
    gone.delete()
    assert root.post(gone_url).status_code == 404
    assert not LineUpRun.objects.exists()


# -- ``manage.py lineup``: its table, its JSON, and how it ends
def run(channel: str, *options: str) -> tuple[int, str, str]:
    """Exit code, standard output and complaint of the command."""
    out = io.StringIO()
    try:
        call_command("lineup", "--channel", channel, *options, stdout=out)
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    return 0, out.getvalue(), ""


# -- the command
def test_the_table_shows_the_figure_beside_chance_and_who_is_taken_for_whom() -> None:
    channel, (formal, shouty, mumbly) = make_channel(), voices("formal", "shouty", "mumbly")
    chat(channel, [formal, shouty], 10)
    chat(channel, [mumbly], 3)
    chat(channel, [formal, shouty], 10, distinct=False)

    code, out, error = run("office")
    result = line_up(channel=channel)

    assert (code, error) == (0, "")
    assert "can be told apart better than by chance" in out
    assert f"Balanced accuracy {100 * (result.balanced_accuracy or 0):.0f} %" in out
    assert f"by chance {100 * (result.chance or 0):.0f} %" in out
    assert f"p = {result.p_value:.3g}. 40 of 43 lines" in out
    assert "Most often taken for" in out
    assert "fewer than 5 lines" in out


def test_without_a_figure_it_exits_with_2_and_says_why() -> None:
    channel = make_channel()
    for number in range(3):
        say(channel, "Visitor", f"hello {number}")

    code, out, error = run("office", "--json")

    assert code == 2
    assert json.loads(out)["reason"] == "no agent spoke here"
    assert (
        error
        == "no figure for #office: no agent spoke here (1 users or outsiders spoke: --everybody compares them too)"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere"], "no channel 'nowhere'; channels: office"),
        (["office", "--window", "soon"], "window 'soon' is not understood"),
        (["office", "--where", "build"], "write tag=value"),
    ],
)
def test_wrong_usage_is_refused_and_names_what_is_allowed(options: list[str], message: str) -> None:
    make_channel()

    code, _, error = run(*options)

    assert code in (2, 3)
    assert message in error


def test_names_with_markup_are_shown_as_they_are() -> None:
    channel = make_channel()
    for number in range(6):
        say(channel, "[red]Eve[/red]", VOICES["formal"].format(number))
        say(channel, "Mr Two", VOICES["shouty"].format(number))

    code, out, _ = run("office", "--everybody")

    assert code == 0
    assert "[red]Eve[/red]" in out
