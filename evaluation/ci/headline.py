"""The verdict and what was found, in one line."""

from __future__ import annotations

from evaluation.ci.findings import Findings
from evaluation.wording import counted

_SIGNS = {
    "pass": "✅",
    "regression": "❌",
    "below threshold": "❌",
    "could not judge enough": "⚠️",
    "not enough data": "⚠️",
    "cannot tell yet": "⚠️",
}


def sign(findings: Findings) -> str:
    """What is seen first: a tick only for a pass in which nothing fell unexplained."""
    return "⚠️" if findings.verdict == "pass" and findings.fell_unsure else _SIGNS[findings.verdict]


def outcome(findings: Findings) -> str:
    """The verdict, and beside a pass the falls that it does not speak of: those without an interval."""
    fell = len(findings.fell_unsure)
    if findings.verdict != "pass" or not fell:
        return findings.verdict
    return f"pass, but {counted(fell, 'score', 'scores')} fell by a point or more without an interval to say how sure that is"


def headline(findings: Findings) -> str:
    """What was found, in a sentence."""
    suspected = sum(found.suspected for found in findings.undecided)
    dimensions = sum(not found.proposition for found in findings.lacking)
    whole = {(r.agent, r.whole.dimension) for r in findings.regressions if r.scope == "dimension"}
    counts = [
        (len(whole), "dimension surely worse", "dimensions surely worse"),
        (sum(bool(r.change.proposition) for r in findings.regressions), "claim surely worse", "claims surely worse"),
        (len(findings.fading), "score fades within conversations", "scores fade within conversations"),
        (len(findings.below), "score below its threshold", "scores below their threshold"),
        (len(findings.unjudged), "part could not be judged enough", "parts could not be judged enough"),
        (dimensions, "score empty for too little data", "scores empty for too little data"),
        (
            len(findings.lacking) - dimensions,
            "claim scored much less than before",
            "claims scored much less than before",
        ),
        (len(findings.undecided), "comparison is not decided", "comparisons are not decided"),
        (suspected, "of them a suspected regression", "of them suspected regressions"),
        (len(findings.without_baseline), "agent without a baseline", "agents without a baseline"),
    ]
    said = [counted(n, one, many) for n, one, many in counts if n]
    return f"{', '.join(said)}." if said else "Nothing got worse."
