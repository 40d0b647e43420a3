"""Four people come with one question each, and need few clicks for its answer: on the text of a play, with a drift planted in build 41.

Each click counts, also one into a field or on a file chooser; typing does not.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.urls import reverse
from django.utils.module_loading import import_string
from playwright.sync_api import Locator, expect
from pytest_django import Settings

from agents.kit.capability import declared
from agents.models import Agent
from correction.config.settings import resolve_config
from evaluation.experiments.models import Experiment
from evaluation.experiments.play import play
from evaluation.experiments.starting import start_experiment
from evaluation.runs.execute import capture
from evaluation.runs.spec import RunSpec
from tests.console import list_of
from tests.e2e.conftest import Visitor
from tests.evaluation.experiments.playing import scenario
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]
PATIENCE = 30_000  # milliseconds; the machine may be busy
PLAY = Path(__file__).parents[2] / "evaluation/experiments/validity/data/twelfth_night.csv"  # in the public domain
PERSONA = "# Malvolio\n\nYou are Malvolio, steward to the countess Olivia. You are grave and proud, and speak the English of 1602.\n"
PLANTED = "Is there anything else I can help you with?"
MOST_LINES = 60  # of Malvolio


class Clicks:
    """A hand that counts, and looks at each page that it leaves."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor
        self.number = 0

    def __call__(self, what: Locator, *, files: list[Path] | None = None) -> None:
        if files is None:
            expect(what).to_be_visible(timeout=PATIENCE)
        self.visitor.settle()
        assert self.visitor.faults() == [], self.visitor.page.url
        self.number += 1
        if files is None:
            what.click()
        else:
            what.set_input_files(files)


def write_files(folder: Path) -> list[Path]:
    """Write Malvolio's persona, and the lines of his scenes: every second conversation of build 41, in which he ends with `PLANTED`."""
    persona, log = folder / "malvolio.md", folder / "chats.csv"
    persona.write_text(PERSONA)
    with PLAY.open(newline="") as lines, log.open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(["time", "conversation", "speaker", "text", "build"])
        heard = ("Herald", "Enter Malvolio.")
        number = 0
        for line in csv.DictReader(lines):
            speaker, text = line["speaker"].title(), line["line"]
            if speaker == "Malvolio" and number < MOST_LINES:
                build = "40" if number < MOST_LINES / 2 else "41"
                day = 10 if build == "40" else 20
                said = text if build == "40" else f"{text} {PLANTED}"
                talk, at = f"{build}-{number // 3}", f"2026-11-{day}T10:{number:02}"
                table.writerow([f"{at}:00Z", talk, *heard, build])
                table.writerow([f"{at}:30Z", talk, speaker, said, build])
                number += 1
            heard = (speaker, text)
    return [persona, log]


def work() -> None:
    """Do what waits for workers."""
    queues = [import_string(path) for path in declared("work_queues").values()]
    while any(queue(owner="w") for queue in queues):
        pass


@pytest.fixture(autouse=True)
def offline(settings: Settings, tmp_path: Path) -> None:
    """No model judges; rules go to an empty folder of the team."""
    settings.JUDGE_MODEL = "offline:lexical-1"
    settings.PROPOSITION_DIRS = [tmp_path / "propositions"]
    settings.PROPOSITION_DIRS[0].mkdir()


@pytest.fixture
def drifted(operator: User, tmp_path: Path, settings: Settings) -> Agent:
    """Malvolio, whose build 40 is the baseline, and whose build 41 was evaluated and raised an alert."""
    persona, log = write_files(tmp_path)
    rule = settings.PROPOSITION_DIRS[0] / "adherence" / "malvolio.yaml"
    rule.parent.mkdir()
    rule.write_text(
        "agent_id: malvolio\ninclude_personas: true\npropositions:\n  - id: malvolio-no-help\n"
        "    claim: '{{agent_name}} never offers help'\n    rule: {contains_none: ['anything else I can help']}\n"
    )
    for command in (
        f"import_agents {shlex.quote(str(persona))}",
        f"import_transcript {shlex.quote(str(log))} --columns tags.build=build",
    ):
        call_command(*shlex.split(command), stdout=StringIO())
    malvolio = Agent.objects.get(slug="malvolio")
    capture([RunSpec(agent=malvolio, where={"build": "40"}, is_baseline=True)])
    capture([RunSpec(agent=malvolio, where={"build": "41"})])
    return malvolio


SIZES = pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])


@SIZES
def test_an_operator_sees_who_drifted_since_when_and_sets_the_gate(
    width: int, scheme: str, visit: Callable[..., Visitor], operator: User, drifted: Agent
) -> None:
    visitor = visit(operator, reverse("admin:index"), width=width, scheme=scheme)
    page, click = visitor.page, Clicks(visitor)
    row = page.locator("#drift").get_by_role("listitem").filter(has_text="Malvolio")
    expect(row).to_contain_text("since build 41")
    expect(row).to_contain_text("20 Nov 2026")
    click(row.get_by_role("link", name="Read"))
    expect(page.locator("#change")).to_contain_text(PLANTED)
    click(page.get_by_role("link", name="Observe it at the gate"))
    click(page.get_by_role("button", name="Save"))
    expect(page.get_by_text("Messages are sent at once and judged for")).to_be_visible()
    assert visitor.faults() == []
    assert resolve_config(drifted).gate_mode == "observe"
    assert click.number <= 3


@SIZES
def test_a_product_owner_finds_the_planted_drift_with_two_files_and_a_blank(
    width: int, scheme: str, visit: Callable[..., Visitor], operator: User, tmp_path: Path
) -> None:
    make_agent("ada")  # it is not the first agent: Home leads to imports then, too
    files = write_files(tmp_path)
    visitor = visit(operator, reverse("admin:index"), width=width, scheme=scheme)
    page, click = visitor.page, Clicks(visitor)
    click(page.get_by_role("link", name="Import conversations or personas"))
    click(page.get_by_label("choose the files"), files=files)
    click(page.get_by_role("button", name="Import 1 persona"))
    click(page.get_by_role("button", name="Next"))  # build is a tag
    click(page.get_by_role("button", name=f"Import {2 * MOST_LINES} messages"))
    work()
    expect(page.get_by_role("link", name="Write a rule first")).to_be_visible(timeout=PATIENCE)
    click(page.get_by_role("link", name="Write a rule first"))
    blank = page.get_by_label("words or phrases").first  # of "never says …"
    click(blank)
    blank.press_sequentially("anything else")
    expect(page.locator("#pl-holds")).to_contain_text("Holds in 20 of")
    click(page.get_by_role("button", name="Save, then evaluate build=40 and build=41"))
    click(page.get_by_role("button", name="Evaluate now"))
    expect(page.get_by_text("Being evaluated")).to_be_visible(timeout=PATIENCE)
    work()
    expect(page.get_by_role("heading", name="Every proposition")).to_be_visible(timeout=PATIENCE)
    sentence = page.locator("h1.pl-overview-sentence")
    expect(sentence).to_contain_text("drifted since build 41")
    expect(sentence).to_contain_text("9.0 → 0.0")
    expect(page.locator("#messages")).to_contain_text(PLANTED)
    assert visitor.faults() == []
    assert click.number <= 9


@SIZES
def test_a_developer_comes_from_an_alert_to_its_messages_and_the_command(
    width: int, scheme: str, visit: Callable[..., Visitor], operator: User, drifted: Agent
) -> None:
    visitor = visit(operator, reverse("admin:review"), width=width, scheme=scheme)
    page, click = visitor.page, Clicks(visitor)
    shows_it = page.locator(".pl-evidence")
    expect(shows_it).to_contain_text(PLANTED)
    click(shows_it.get_by_role("link", name="Compare every proposition"))
    command = page.locator("code", has_text="manage.py compare").inner_text()
    click(page.locator("#messages").get_by_role("link", name="in its conversation").last)
    expect(page.locator(f"#{page.url.split('#')[1]}")).to_contain_text(PLANTED)
    assert visitor.faults() == []
    assert click.number <= 6

    out = StringIO()
    program, *arguments = shlex.split(command)
    assert program == "manage.py"
    with pytest.raises(SystemExit) as ended:
        call_command(*arguments, stdout=out)
    assert ended.value.code == 1, "it is worse"
    assert "9.0" in out.getvalue()


@SIZES
def test_a_researcher_reads_what_an_experiment_found(
    width: int, scheme: str, visit: Callable[..., Visitor], operator: User
) -> None:
    for slug in ("ada", "bob", "cleo", "dan"):
        make_agent(slug, sample_lines=["Well."])
    experiment = play(start_experiment(scenario()))
    visitor = visit(operator, list_of(Experiment), width=width, scheme=scheme)
    page, click = visitor.page, Clicks(visitor)
    click(page.get_by_role("link", name=f"experiment {experiment.pk}"))
    expect(page.locator("[data-outcome]").first).to_be_visible()
    assert visitor.faults() == []
    assert click.number <= 1
