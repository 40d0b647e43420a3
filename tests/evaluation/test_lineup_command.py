"""``manage.py lineup``: its table, its JSON, and how it ends."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from evaluation.lineup import line_up
from tests.evaluation.lining_up import VOICES, chat, voices
from tests.factories import make_channel, say

pytestmark = pytest.mark.django_db


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
    assert "Who is taken for whom" in out
    assert "fewer than 5 lines" in out


def test_json_is_one_object_with_every_figure() -> None:
    chat(make_channel(), voices("formal", "shouty"), 8)

    code, out, _ = run("office", "--json", "--permutations", "99", "--seed", "2")

    document = json.loads(out)
    assert code == 0
    assert document["channel"] == "office"
    assert (document["balanced_accuracy"], document["distinct"]) == (1.0, True)
    assert 0.01 <= document["p_value"] <= 0.05
    assert (document["permutations"], document["seed"], document["blocks"]) == (99, 2, 5)
    assert document["voices"][0] == {
        "speaker": "formal",
        "kind": "agent",
        "lines": 8,
        "compared": 8,
        "recall": 1.0,
        "chance": document["voices"][0]["chance"],
    }


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
        (["office", "--min-lines", "0"], "min_lines is 0; allowed: 2 or more"),
        (["office", "--permutations", "many"], "invalid int value: 'many'"),
    ],
)
def test_wrong_usage_exits_with_3_and_names_what_is_allowed(options: list[str], message: str) -> None:
    make_channel()

    code, _, error = run(*options)

    assert code == 3
    assert message in error


def test_names_with_markup_are_shown_as_they_are() -> None:
    channel = make_channel()
    for number in range(6):
        say(channel, "[red]Eve[/red]", VOICES["formal"].format(number))
        say(channel, "Mr Two", VOICES["shouty"].format(number))

    code, out, _ = run("office", "--everybody")

    assert code == 0
    assert "[red]Eve[/red]" in out


def test_the_help_says_what_the_figure_means_and_its_limits(capsys: pytest.CaptureFixture[str]) -> None:
    from evaluation.management.commands.lineup import Command

    text = Command().create_parser("manage.py", "lineup").format_help()

    for part in (
        "balanced accuracy is the mean over the speakers",
        "What it does not mean",
        "2,000 lines",
        "Exit code",
    ):
        assert part in text
