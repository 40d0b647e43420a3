"""A baseline that shares no proposition with what is asked now cannot say that nothing got worse."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from tests.evaluation.ci.building import run
from tests.evaluation.conftest import PropositionFolder
from tests.factories import make_agent, make_channel, talk

pytestmark = pytest.mark.django_db
RULE = "propositions:\n  - {{id: {0}, claim: short, rule: {{max_words: 3}}}}\n"


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 2)])
def test_renamed_propositions_are_not_enough_data(
    propositions: PropositionFolder, options: tuple[str, ...], code: int
) -> None:
    ada = make_agent("ada")
    for build, text in (("40", "Short."), ("41", "This goes on and on and on.")):
        talk(ada, [f"{text} {n}" for n in range(12)], channel=make_channel(f"c{build}"), tags={"build": build})
    propositions.write("adherence/_default.yaml", RULE.format("short"))

    call_command(
        "capture_baseline", "--agents", "ada", "--dimensions", "adherence", "--where", "build=40", "--no-simulate"
    )
    propositions.write("adherence/_default.yaml", RULE.format("brief"))

    found, out, _ = run("--agents", "ada", "--dimensions", "adherence", "--where", "build=41", *options)

    assert found == code
    assert "no proposition was scored in both" in " ".join(out.split())
    assert "Nothing got worse" not in out
