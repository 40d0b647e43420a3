"""What a build is compared with: the current baselines of the database, or a file that an earlier build kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from django.db.models import QuerySet

from evaluation.change.comparison import Comparison, compare, compare_to_baseline
from evaluation.change.measurement_files import measurements_of_file
from evaluation.change.measurements import Measurement, NotComparable, measurement_of
from evaluation.models import Baseline, EvaluationRun
from evaluation.run_spec import RunSpec

Found = tuple[Comparison | None, str]  # else why there is none


class CurrentBaselines:
    """Per agent and dimension the current baseline of the same judge and procedure (AC-6.5.4)."""

    name = "the current baselines"

    def compare(self, run: EvaluationRun, *, margin: float) -> Found:
        found = compare_to_baseline(run, margin=margin)
        return found, "" if found else self._why_none(run)

    def was_measured(self, run: EvaluationRun) -> bool:
        """Whether there is a baseline for the agent, so that it once had a score."""
        return self._of(run).filter(judge=run.judge, procedure=run.procedure, dimension__in=run.dimensions).exists()

    def _of(self, run: EvaluationRun) -> QuerySet[Baseline]:
        return Baseline.objects.filter(agent=run.agent)

    def _why_none(self, run: EvaluationRun) -> str:
        others = self._of(run).order_by("judge", "procedure").values_list("judge", "procedure").distinct()
        names = [f"{judge} ({procedure})" for judge, procedure in others]
        return f"no baseline by {run.judge} ({run.procedure})" + (
            f"; there is one by {', '.join(names)}" if names else ""
        )


class FileBaseline:
    """Sides that `capture_baseline --json` or `evaluate --json` printed."""

    def __init__(self, path: Path, specs: Sequence[RunSpec]) -> None:
        """Read the file and find out, before anything is asked, that it can be compared with.

        Raises:
            NotComparable: It holds none of the agents, or another judge or procedure.
            UnreadableFile: It is not such a file.
        """
        self.name, self._sides = str(path), measurements_of_file(path)
        wanted = [spec.target.slug for spec in specs]
        known = [slug for slug in wanted if slug in self._sides]
        if not known:
            names = ", ".join(list(self._sides)[:20]) or "nothing"
            raise NotComparable(f"--baseline {path}: holds none of {', '.join(wanted[:20])}; it holds {names}")
        for slug in known:
            self._check(path, self._sides[slug], specs[wanted.index(slug)])

    @staticmethod
    def _check(path: Path, side: Measurement, spec: RunSpec) -> None:
        for what, there, here in (
            ("judged by", side.judge, spec.judge_model),
            ("judged as", side.procedure, spec.procedure),
        ):
            if there != here:
                raise NotComparable(
                    f"--baseline {path}: {side.target} was {what} {there}, this evaluation would be {what} {here}; "
                    "scores compare only with scores of the same judge and procedure"
                )

    def compare(self, run: EvaluationRun, *, margin: float) -> Found:
        side = self._sides.get(run.agent.slug if run.agent else "")
        if side is None:
            return None, f"{self.name} does not hold it"
        return compare(side, measurement_of(run), margin=margin), ""

    def was_measured(self, run: EvaluationRun) -> bool:
        side = self._sides.get(run.agent.slug if run.agent else "")
        return side is not None and any(side.scores.get(d) is not None for d in run.dimensions)


class NoBaseline:
    """Nothing is compared."""

    def __init__(self, why: str) -> None:
        self.name, self._why = "", why

    def compare(self, run: EvaluationRun, *, margin: float) -> Found:
        return None, self._why

    def was_measured(self, run: EvaluationRun) -> bool:
        return False


BaselineSource = CurrentBaselines | FileBaseline | NoBaseline
