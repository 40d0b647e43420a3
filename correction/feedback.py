"""What an agent is told about a draft that was sent back (AC-7.0.7): findings per failed dimension, and to change more each time."""

from __future__ import annotations

from collections.abc import Sequence

from django.template.loader import render_to_string

from agents.text.fences import neutral
from correction.gate_values import DimensionCheck

LABELS = {"adherence": "Persona adherence", "consistency": "Self-consistency", "fluency": "Fluency"}
MAX_DRAFT, MAX_FINDING = 1_000, 1_500  # characters quoted


def feedback(*, draft: str, checks: Sequence[DimensionCheck], attempt: int, left: int, external: bool = False) -> str:
    """The feedback for an attempt that failed.

    The draft and the judge's words are data: quoted line by line, their marker-like text neutralised, so that neither can pass for
    an instruction of ours.

    Args:
        draft: The text as it was judged.
        checks: Every dimension that was checked; those that failed are explained.
        attempt: Which attempt this was, from 1.
        left: Retries that are left, 1 or more; 0 only where another program decides what then happens.
        external: Whether it is another program's draft: no tools of ours, and whether it is said is not our decision.
    """
    failed = [
        {
            "label": LABELS.get(check.dimension, check.dimension.replace("_", " ").capitalize()),
            "score": f"{check.score:g}",
            "threshold": f"{check.threshold:g}",
            "reasoning": _quoted(check.reasoning, MAX_FINDING),
            "recommendations": check.recommendations,
        }
        for check in checks
        if not check.passed
    ]
    values = {
        "failed": failed,
        "checked": len(checks),
        "draft": _quoted(draft, MAX_DRAFT),
        "attempt": attempt,
        "left": left,
        "external": external,
    }
    return render_to_string("prompts/gate/feedback.md", values).strip()


def _quoted(text: str, limit: int) -> str:
    """Text behind bars, so that none of its lines can stand as one of ours."""
    return "\n".join(f"> {line}" for line in neutral(text.strip(), limit)[0].split("\n")) if text.strip() else ""
