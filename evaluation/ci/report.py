"""One evaluation with its verdict, in every form it can be handed on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluation.change.position import Bin, PositionProfile
from evaluation.ci.findings import Findings
from evaluation.ci.gather import AgentResult
from evaluation.ci.limits import Limits
from evaluation.ci.positions import fading_in, profiles_of
from evaluation.ci.simulating import unsimulated
from evaluation.ci.verdict import decide
from evaluation.simulation import Simulation
from evaluation.spending import Spending, spent_on


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was measured, what it was held to, and the verdict.

    Attributes:
        by_position: Per agent its scores by position; empty unless asked for.
        simulations: What was simulated to be measured; empty for real speech.
        estimate: What judging was estimated to need; None where the judge costs nothing.
    """

    judge: str
    results: tuple[AgentResult, ...]
    findings: Findings
    limits: Limits
    by_position: Mapping[str, PositionProfile]
    simulations: tuple[Simulation, ...] = ()
    estimate: Spending | None = None

    @property
    def actual(self) -> Spending:
        """What judging really used, over all agents and channels, each once."""
        return spent_on([result.captured for result in self.results])

    def json(self) -> str:
        """The object as text, ending with a line break."""
        from evaluation.ci.report_json import report_json

        return json.dumps(report_json(self), ensure_ascii=False, indent=2) + "\n"

    def markdown(self) -> str:
        """A comment for a pull request."""
        from evaluation.ci.markdown import markdown

        return markdown(self)

    def junit(self) -> str:
        """JUnit XML."""
        from evaluation.ci.junit import junit

        return junit(self)


def make_report(
    judge: str,
    results: Sequence[AgentResult],
    limits: Limits,
    *,
    bins: Sequence[Bin] = (),
    simulations: Sequence[Simulation] = (),
    estimate: Spending | None = None,
) -> Report:
    """Decide, and keep everything together."""
    profiles = profiles_of(results, bins, limits) if bins else {}
    fading = tuple(fading_in(list(profiles.values()), limits))
    findings = decide(results, limits, fading=fading, missing=tuple(unsimulated(simulations, limits)))
    return Report(
        judge=judge,
        results=tuple(results),
        findings=findings,
        limits=limits,
        by_position=profiles,
        simulations=tuple(simulations),
        estimate=estimate,
    )
