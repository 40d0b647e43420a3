"""The drift overview, `compare` and `evaluate` say the same of the same two builds, judged offline by rules and cues."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from pytest_django import Settings

from tests.evaluation.change.measured import drift_of
from tests.evaluation.change.test_compare_command import ran
from tests.evaluation.ci.building import run
from tests.evaluation.conftest import PropositionFolder
from tests.factories import MONDAY, make_agent, make_channel, talk

pytestmark = [pytest.mark.django_db, pytest.mark.usual_minimum]

FLUENCY = """
dimension: fluency
propositions:
  - {id: formulas, claim: "{{agent_name}} has no formulas", measure: phrases}
"""
STOCK = """
dimension: adherence
propositions:
  - {id: stock, claim: "{{agent_name}} is a stock assistant", inverted: true,
     cues: {supports: [dear customer], contradicts: [my friend]}}
"""
BRIEF = '  - {id: brief, claim: "{{agent_name}} is brief", rule: {max_words: 30}}\n'


@dataclass(frozen=True)
class Build:
    """So many messages, some with a cue for the anti-pattern (a hit) and some with one against it."""

    hits: int
    messages: int
    supporting: int = 0

    @property
    def texts(self) -> list[str]:
        others = self.messages - self.hits - self.supporting
        greetings = ["Dear customer"] * self.hits + ["My friend"] * self.supporting + ["Hello there"] * others
        return [f"{greeting}, {_number(n)}." for n, greeting in enumerate(greetings)]


def _number(n: int) -> str:
    return f"word{n}a word{n}b word{n}c word{n}d"


def verdicts_of(*builds: list[str]) -> tuple[str, int, int]:
    """Return the state in the overview, and the exit codes of `compare` and `evaluate`, of the last build against the first."""
    nora = make_agent("nora")
    asked = ("--agents", "nora", "--samples", "100", "--dimensions", "adherence,fluency")
    evaluated = 0
    for day, texts in enumerate(builds):
        tags = {"build": str(day)}
        talk(nora, texts, channel=make_channel(f"nora-{day}"), tags=tags, sent_at=MONDAY + timedelta(days=day))
        if day == 0:
            call_command("capture_baseline", *asked, "--where", "build=0", "--no-simulate", "--json", stdout=StringIO())
        else:
            evaluated, _, _ = run(*asked, "--where", f"build={day}")
    return drift_of(nora).state, ran("--agents", "nora")[0], evaluated


@pytest.fixture
def folder(propositions: PropositionFolder, settings: Settings) -> PropositionFolder:
    settings.JUDGE_MODEL = "offline:lexical-1"
    propositions.write("fluency/_default.yaml", FLUENCY)
    return propositions


HITS = [
    (Build(0, 28), Build(7, 24), "drifted", 1, BRIEF),
    (Build(40, 60), Build(60, 60), "drifted", 1, ""),
    (Build(0, 28), Build(3, 24), "possibly drifted", 0, ""),
    (Build(22, 28), Build(8, 24), "improved", 0, ""),
]


@pytest.mark.parametrize(("before", "now", "state", "code", "rule"), HITS)
def test_hits_of_cues_say_the_same_everywhere(
    folder: PropositionFolder, before: Build, now: Build, state: str, code: int, rule: str
) -> None:
    folder.write("adherence/_default.yaml", STOCK + rule)

    assert verdicts_of(before.texts, now.texts) == (state, code, code)


def test_without_any_hit_nothing_is_called_steady_and_nothing_fails(folder: PropositionFolder) -> None:
    folder.write("adherence/_default.yaml", STOCK)

    assert verdicts_of(Build(0, 28).texts, Build(0, 24).texts) == ("not enough data", 0, 0)


def test_a_dimension_that_lost_its_score_is_steady_nowhere(folder: PropositionFolder) -> None:
    """Each of its twenty cues alone is not significantly rarer."""
    cues = [f'  - {{id: c{n}, claim: "claim {n}", cues: {{supports: [cue{n}z]}}}}\n' for n in range(20)]
    folder.write("adherence/_default.yaml", f"dimension: adherence\npropositions:\n{''.join(cues)}")

    def texts(least: int, most: int) -> list[str]:
        sizes = [(least, most)[n % 5 < 3] for n in range(60)]
        return [" ".join(f"cue{(n * 7 + k) % 20}z" for k in range(size)) + "." for n, size in enumerate(sizes)]

    assert verdicts_of(texts(8, 9), texts(4, 4)) == ("not enough data", 2, 2)
