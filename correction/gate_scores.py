"""From replies and verdicts to one check per dimension: what counts, what passes, and why something was not judged."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from agents.llm import Reply, Status
from agents.text.patterns import TIMED_OUT
from correction.gate_values import DimensionCheck, DimensionStatus, Part
from evaluation.judge import Question, read_reply
from evaluation.models import is_heuristic
from evaluation.propositions.schema import Proposition
from evaluation.verdicts import MAX_SCORE, Verdict

# The calls that brought no verdict, the one that says most first.
_FAILED: tuple[DimensionStatus, ...] = ("timeout", "overload", "error", "budget")


def judge_parts(question: Question, reply: Reply) -> list[Part]:
    """What a judge's reply says of each claim of its question. Found cues mean nothing without the claim they speak of."""
    claims = question.claims()
    return [
        part_of(
            proposition,
            verdict,
            call_failed=_failure(reply, verdict),
            duration_ms=reply.latency_ms + reply.waited_ms,
            about=claims[key] if proposition.cues and is_heuristic(verdict.judge) else "",
        )
        for (key, proposition), verdict in zip(question.keyed().items(), read_reply(question, reply), strict=True)
    ]


def _failure(reply: Reply, verdict: Verdict) -> DimensionStatus | None:
    """How the call failed; None when it brought an answer, be it that the claim cannot be judged."""
    if reply.ok:
        return "error" if verdict.reason.startswith("malformed") else None
    if reply.status is Status.TIMEOUT:
        return "timeout" if reply.attempts else "overload"  # without an attempt: no free slot, or it hangs
    return "error"


def part_of(
    proposition: Proposition,
    verdict: Verdict,
    *,
    call_failed: DimensionStatus | None = None,
    duration_ms: int = 0,
    about: str = "",
) -> Part:
    """A verdict as a part of its dimension."""
    return Part(
        id=proposition.id,
        judge=verdict.judge,
        status=call_failed or verdict.status,
        score=None if verdict.value is None else float(verdict.value),
        weight=proposition.weight,
        about=about,
        reasoning=verdict.reasoning,
        recommendations=proposition.recommendations,
        reason=verdict.reason,
        call=verdict.call,
        duration_ms=duration_ms,
    )


def combine(*, dimension: str, threshold: Decimal, claims: Sequence[Part], own: Sequence[Part] = ()) -> DimensionCheck:
    """One dimension's check: the worst of the judge's number and of each of the agent's own rules and cues.

    Where there are several claims the judge's number is their weighted mean. A call that failed leaves the dimension unjudged and
    passed, however well the rules held: they are a part of it. A broken rule fails it all the same.

    Args:
        dimension: Its id.
        threshold: Lowest score that passes.
        claims: What the judge was asked.
        own: The agent's own rules and cues.
    """
    scored = [part for part in claims if part.status == "scored" and part.score is not None]
    candidates: list[tuple[float, Part]] = [(p.score, p) for p in own if p.status == "scored" and p.score is not None]
    if scored:
        mean = round(sum((p.score or 0.0) * p.weight for p in scored) / sum(p.weight for p in scored), 2)
        candidates.insert(0, (mean, min(scored, key=lambda p: p.score or 0.0)))
    parts = (*own, *claims)
    failed = next((p for status in _FAILED for p in parts if p.status == status), None)
    score, decisive = min(candidates, key=lambda pair: pair[0]) if candidates else (None, None)
    broken = score is not None and score < threshold
    status: DimensionStatus = "scored"
    if failed is not None and not broken:
        status, score, decisive = failed.status, None, failed
    elif decisive is None:
        slow_first = sorted(parts, key=lambda p: not p.reason.startswith(TIMED_OUT))
        decisive = next((p for status in ("trivial", "unscored") for p in slow_first if p.status == status), None)
        status = "unscored" if decisive is None else decisive.status
        score = float(MAX_SCORE) if status == "trivial" else None
    return DimensionCheck(
        dimension=dimension,
        status=status,
        score=score,
        threshold=threshold,
        passed=not broken,
        reasoning=_reasoning(decisive, threshold, parts) if broken else decisive.reasoning if decisive else "",
        recommendations=_recommendations(threshold, parts) if broken else "",
        reason="" if status == "scored" else decisive.reason if decisive else "nothing to check it by",
        judge=decisive.judge if decisive else "",
        proposition_id=decisive.id if decisive else "",
        parts=parts,
        call=next((p.call for p in claims if p.call is not None), None),
        duration_ms=max((p.duration_ms for p in claims), default=0),
    )


def _below(threshold: Decimal, parts: Sequence[Part]) -> list[Part]:
    """The parts that speak against the draft, worst first."""
    return sorted(
        (p for p in parts if p.status == "scored" and (p.score or 0.0) < threshold), key=lambda p: p.score or 0.0
    )


def _reasoning(decisive: Part | None, threshold: Decimal, parts: Sequence[Part]) -> str:
    """The reasons of everything that speaks against the draft, what decided first."""
    against = [*([decisive] if decisive else []), *(p for p in _below(threshold, parts) if p is not decisive)]
    return "\n".join(dict.fromkeys(_said(part) for part in against if part.reasoning))


def _said(part: Part) -> str:
    return f"{part.about.rstrip('. ')}: {part.reasoning}" if part.about else part.reasoning


def _recommendations(threshold: Decimal, parts: Sequence[Part]) -> str:
    return "\n".join(dict.fromkeys(p.recommendations for p in _below(threshold, parts) if p.recommendations))
