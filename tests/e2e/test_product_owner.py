"""A product owner's job: from a persona file and a chat log with builds to a comparison of two builds and a threshold, without a shell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils.module_loading import import_string
from playwright.sync_api import Locator, expect
from pytest_django import Settings

from agents.kit.capability import declared
from agents.models import Agent, Message
from correction.config.settings import resolve_config
from evaluation.models import EvaluationRun
from tests.correction.gating import team_file
from tests.e2e.conftest import Visitor
from tests.evaluation.judging import answers, prompt_of
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]
PATIENCE = 30_000  # milliseconds; the machine may be busy
PERSONA = """# Pia

You are Pia, the voice of a small bakery. You are warm and short: two sentences at most. You never sound like a machine.
"""
BOUGHT = ("a rye loaf", "six rolls", "a plum cake", "two pretzels", "an apple pie", "a baguette", "rusks", "a seed bun")
OLD = "{thing} for you, fresh at seven. See you then!"
NEW = "As an AI language model, I can certainly help you with {thing}. Please provide further details regarding your request. Thank you."


def chat_log() -> str:
    lines = ["time,conversation,speaker,text,build"]
    for number, (build, said) in enumerate(
        (build, said) for build, said in (("40", OLD), ("41", NEW)) for _ in range(3)
    ):
        for place, thing in enumerate(BOUGHT):
            talk, at = f"{number}-{place}", f"2026-11-{number + 10:02}T10:{place:02}"
            lines.append(f'{at}:00Z,{talk},Customer,"I would like {thing}, please.",{build}')
            lines.append(f'{at}:30Z,{talk},Pia,"{said.format(thing=thing.capitalize())}",{build}')
    return "\n".join(lines) + "\n"


@dataclass
class Clicks:
    """A hand that counts."""

    number: int = 0

    def __call__(self, what: Locator, *, file: Path | None = None) -> None:
        self.number += 1
        if file is not None:
            what.set_input_files(file)
        else:
            what.click()


def work() -> None:
    """What workers do until nothing waits."""
    queues = [import_string(path) for path in declared("work_queues").values()]
    for _ in count():
        if not any(queue(owner="w") for queue in queues):
            return


def sees_machines(body: dict[str, Any]) -> dict[str, Any]:
    machine = prompt_of(body).rstrip().rpartition("<<<MESSAGE")[2].partition("<<<END")[0]
    return answers(lambda claim: 2 if "AI language model" in machine else 8)(body)


@pytest.mark.parametrize(
    ("judge", "width", "scheme", "most"), [("model", 1440, "light", 20), ("offline", 390, "dark", 25)]
)
def test_from_files_to_a_comparison_of_builds_and_a_threshold(
    judge: str, width: int, scheme: str, most: int, visit: Callable[..., Visitor], operator: User, settings: Settings,
    tmp_path: Path, llm_server: LLMServer,
) -> None:  # fmt: skip
    llm_server.respond = sees_machines
    if judge == "offline":
        settings.JUDGE_MODEL = "offline:lexical-1"
        team_file(settings, tmp_path, "adherence/pia.yaml", "rule: {max_sentences: 2}")
    persona, log = tmp_path / "pia.md", tmp_path / "chats.csv"
    persona.write_text(PERSONA)
    log.write_text(chat_log())
    click, visitor = Clicks(), visit(width=width, scheme=scheme)
    visitor.enter(operator)
    page = visitor.page
    visitor.open("/admin/")

    click(page.get_by_role("link", name="Import personas"))
    click(page.get_by_label("Files"), file=persona)
    expect(page.get_by_text("What its model reads")).to_be_visible()
    assert visitor.faults() == []
    click(page.get_by_role("button", name="Import 1 persona"))
    click(page.get_by_role("link", name="Import its conversations"))
    click(page.get_by_label("Files"), file=log)
    expect(page.get_by_text("Is build a tag?")).to_be_visible()
    assert visitor.faults() == []
    click(page.get_by_role("button", name="Next"))
    click(page.get_by_role("button", name="Import 96 messages"))
    work()
    both = page.get_by_role("link", name="Evaluate build=40 and build=41, to compare them")
    expect(both).to_be_visible(timeout=PATIENCE)
    assert Message.objects.filter(agent__slug="pia", tags={"build": "41"}).count() == 24
    assert visitor.fits

    click(both)
    expect(page.get_by_text("What it takes")).to_be_visible()
    assert visitor.faults() == []
    click(page.get_by_role("button", name="Evaluate now"))
    expect(page.get_by_text("Being evaluated")).to_be_visible(timeout=PATIENCE)
    work()
    assert set(EvaluationRun.objects.values_list("status", flat=True)) == {"completed"}
    expect(page.get_by_role("heading", name="Every proposition")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("drifted").first).to_be_visible()
    assert visitor.faults() == []

    click(page.locator("#content").get_by_role("link", name="Pia").first)
    click(page.locator(".pl-toolbar").get_by_role("link", name="Set the gate"))
    card = page.locator("#threshold-adherence")
    expect(card).to_contain_text("scored messages would have been sent back")
    card.get_by_label("Lowest score that passes").fill("5")
    click(page.get_by_role("radio", name="Observe"))
    click(page.get_by_role("button", name="Save"))
    expect(page.get_by_text("Messages are sent at once and judged for")).to_be_visible()

    config = resolve_config(Agent.objects.get(slug="pia"))
    assert (config.gate_mode, config.threshold("adherence")) == ("observe", Decimal(5))
    assert click.number <= most
