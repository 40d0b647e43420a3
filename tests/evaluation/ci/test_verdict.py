"""The verdict on given numbers: what is sure among many, and which code wins."""

from __future__ import annotations

from dataclasses import replace as replace_fields
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from agents.models import Agent
from evaluation.change.change import ChangeResult
from evaluation.change.comparison import Comparison
from evaluation.change.measured import MeasuredDimension, MeasuredProposition
from evaluation.change.measurements import Measurement
from evaluation.ci.limits import Limits
from evaluation.ci.report import Report
from evaluation.ci.results import AgentResult, Coverage
from evaluation.ci.verdict import Findings, decide
from evaluation.models import EvaluationRun
from evaluation.runs.execute import Captured
from evaluation.runs.numbers import DimensionSummary, RunSummary
from evaluation.statistics.bootstrap import Interval

T = TypeVar("T")


def replace(value: T, **fields: Any) -> T:
    """The same with other fields: of a model, or of a dataclass."""
    return value.model_copy(update=fields) if isinstance(value, BaseModel) else replace_fields(value, **fields)  # type: ignore[type-var]


STEADY = ChangeResult(
    dimension="convergence",
    baseline=8.0,
    candidate=8.0,
    interval=Interval(-0.2, 0.2),
    verdict="steady",
    reason="the whole interval lies within ±0.5",
    n=20,
    baseline_n=20,
    p_value=1.0,
    p_adjusted=1.0,
)
FELL = replace(STEADY, candidate=6.0, interval=Interval(-3.0, -1.0), verdict="drifted", p_value=0.001)


def result(change: ChangeResult | None, *, failed: int = 0, slug: str = "ada") -> AgentResult:
    """An agent with one dimension that is measured in no channel, so that no worst message is looked for in a database."""
    run = EvaluationRun(agent=Agent(slug=slug), dimensions=["ideas_quantity"], status="completed", judge="m")
    score = 8.0 if change is None else change.candidate
    counts: dict[str, Any] = {"scored": 20, "trivial": 0, "unscored": failed, "pending": 0, "propositions": ()}
    outcome = DimensionSummary(dimension="ideas_quantity", score=score, **counts)
    measurement = Measurement(name="before", target=slug, judge="m", procedure="plumbline")
    changed = None if change is None else replace(change, dimension="ideas_quantity")
    return AgentResult(
        captured=Captured(
            RunSummary(run=run, overall_score=score, dimensions={"ideas_quantity": outcome}), False, False
        ),
        coverage={"ideas_quantity": Coverage(scored=20, failed=failed, example="timeout")},
        comparison=None
        if changed is None
        else Comparison(baseline=measurement, candidate=measurement, dimensions=(changed,), propositions={}),
        no_baseline="none yet" if change is None else "",
    )


@pytest.mark.parametrize(
    ("change", "failed", "thresholds", "strict", "verdict", "code"),
    [
        (STEADY, 0, {}, True, "pass", 0),
        (replace(FELL, candidate=7.5), 0, {}, False, "regression", 1),
        (replace(FELL, candidate=7.6), 0, {}, False, "pass", 0),
        (replace(FELL, candidate=10.0, verdict="improved"), 0, {}, True, "pass", 0),
        (STEADY, 0, {"ideas_quantity": 9.0}, False, "below threshold", 1),
        (FELL, 0, {"ideas_quantity": 9.0}, False, "regression", 1),
        (FELL, 6, {"ideas_quantity": 9.0}, False, "could not judge enough", 2),
        (FELL, 5, {}, False, "regression", 1),
        (None, 0, {}, True, "cannot tell yet", 2),
    ],
)
def test_unjudged_comes_before_regressions_and_these_before_thresholds(
    change: ChangeResult | None, failed: int, thresholds: dict[str, float], strict: bool, verdict: str, code: int
) -> None:
    findings = decide([result(change, failed=failed)], Limits(thresholds=thresholds, strict=strict))

    assert (findings.verdict, findings.exit_code) == (verdict, code)


def test_a_fall_that_chance_gives_among_so_many_is_only_suspected() -> None:
    taken_back = replace(FELL, verdict="possibly drifted", p_value=0.02, p_adjusted=0.4, reason="among 20")

    findings = decide([result(taken_back)], Limits())

    assert (findings.exit_code, [one.suspected for one in findings.of_kind("cannot_tell_yet")]) == (0, [True])
    assert decide([result(taken_back)], Limits(strict=True)).exit_code == 2


# -- which claims are named
def with_claims(dimension: ChangeResult, *claims: ChangeResult) -> AgentResult:
    given = result(dimension)
    assert given.comparison is not None
    rows = tuple(replace(c, dimension="ideas_quantity") for c in claims)
    return replace(given, comparison=replace(given.comparison, propositions={"ideas_quantity": rows}))


UNSURE = replace(FELL, proposition="loud", candidate=1.0, interval=None, verdict="possibly drifted")


def regressions(findings: Findings) -> list[tuple[str, str | None]]:
    return [(entry["scope"], entry["proposition"]) for entry in findings.model_dump()["regressions"]]


def test_a_proposition_s_significant_fall_is_named_not_a_larger_unsure_one() -> None:
    findings = decide([with_claims(FELL, UNSURE, replace(FELL, proposition="brief"))], Limits())

    assert regressions(findings) == [("dimension", "brief")]
    assert "fell_most" not in findings.model_dump()["regressions"][0]


def test_where_no_proposition_fell_significantly_the_dimension_is_the_regression() -> None:
    less = replace(UNSURE, proposition="kind", candidate=4.5, interval=Interval(-7.5, 0.5))

    findings = decide([with_claims(FELL, less, UNSURE)], Limits())

    assert regressions(findings) == [("dimension", None)]
    lines = [(one.verdict, one.proposition) for one in findings.of_kind("regressions")]
    assert lines == [
        ("worse", ""),
        ("fell most, but not significantly", "loud"),
        ("fell most, but not significantly", "kind"),
    ]
    assert findings.headline == "1 dimension significantly worse."


@pytest.mark.parametrize(
    ("delta", "interval", "seen"),
    [(-9.0, None, "⚠️"), (-1.0, None, "⚠️"), (-0.9, None, "✅"), (9.0, None, "✅"), (-1.2, Interval(-3.0, 0.6), "✅")],
)
def test_a_pass_with_an_unexplained_fall_has_no_tick(delta: float, interval: Interval | None, seen: str) -> None:
    moved = replace(UNSURE, proposition="", candidate=8.0 + delta, interval=interval)

    findings = decide([_fluent(moved)], Limits())

    assert (findings.verdict, findings.exit_code, findings.sign) == ("pass", 0, seen)
    said = "pass, but 1 score fell by a point or more without an interval to say how sure that is"
    assert findings.outcome == (said if seen == "⚠️" else "pass")


def _fluent(change: ChangeResult) -> AgentResult:
    given = result(change)
    assert given.comparison is not None
    return replace(given, comparison=replace(given.comparison, dimensions=(replace(change, dimension="fluency"),)))


def test_a_score_over_other_propositions_than_its_change_is_noted() -> None:
    given = result(replace(FELL, baseline=9.0, candidate=3.0))
    assert given.comparison is not None
    change = replace(given.comparison.dimensions[0], dimension="adherence")
    asked = {name: MeasuredProposition(score=score) for name, score in (("brief", 3.0), ("new", 9.0))}
    before = replace(given.comparison.baseline, dimensions={"adherence": MeasuredDimension()})
    side = replace(before, dimensions={"adherence": MeasuredDimension(propositions=asked)})
    compared = replace(
        given.comparison,
        baseline=before,
        candidate=side,
        dimensions=(change,),
        propositions={"adherence": (replace(change, proposition="brief"),)},
    )
    adherence = replace(given.summary.dimensions["ideas_quantity"], dimension="adherence", score=6.0)
    scored = replace(given.summary, dimensions={"adherence": adherence})
    given = replace(given, captured=Captured(scored, False, False), comparison=compared)

    report = Report(judge="m", results=(given,), limits=Limits())

    assert list(report.notes()) == ["adherence: the change is over 1 of 2 propositions, 9.0 → 3.0"]


@pytest.mark.parametrize(
    ("expected", "scored", "verdict"),
    [(True, 3, "not enough data"), (True, 0, "pass"), (False, 3, "pass")],
)
def test_an_agent_that_must_be_scored_is_no_pass_with_too_little(expected: bool, scored: int, verdict: str) -> None:
    one = result(None)
    little = DimensionSummary(
        dimension="fluency", scored=scored, reason=f"not enough data: {scored} of 6 judgements scored"
    )
    summary = replace(one.summary, dimensions={**one.summary.dimensions, "fluency": little})

    found = decide([replace(one, captured=replace(one.captured, summary=summary), expected=expected)], Limits())

    assert found.verdict == verdict


def test_no_agents_are_no_pass() -> None:
    assert decide([], Limits()).exit_code == 2


def test_counted_dimensions_have_no_passport_to_require() -> None:
    findings = decide([result(STEADY)], Limits(require_passport=True), passports=[])

    assert (findings.verdict, findings.exit_code) == ("judge without a passport", 2)
    (finding,) = findings.findings
    assert "ideas_quantity" in finding.why
