"""How well the calibration's risk tells requests that need a question from those that do not, and which ones would be asked back.

Reads JSON lines ``{"request": text, "needs_clarification": bool}``. Prints the area under the ROC curve (AUC) of the risk with its
interval, beside that of the request's length alone (shorter = riskier): 0.5 is chance. Rules see only required information that is missing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agents.swarm.calibration import Calibration
    from evaluation.statistics.bootstrap import Estimate

EXAMPLE = Path(__file__).with_name("clarify.jsonl")
RESAMPLES = 2_000


def read_requests(path: Path) -> list[tuple[str, bool]]:
    """Each request of a file with its label.

    Raises:
        ValueError: A line is not of the form; names it.
    """
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
            request, needs = row["request"], row["needs_clarification"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: {error}; allowed: request (text), needs_clarification (bool)"
            ) from None
        if not isinstance(request, str) or not isinstance(needs, bool):
            raise ValueError(f"{path}, line {number}: allowed: request (text), needs_clarification (true or false)")
        rows.append((request, needs))
    return rows


def auc(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """The probability that a labelled request scores higher than an unlabelled one, ties counted half (Mann-Whitney); NaN without both."""
    from scipy.stats import rankdata

    positive, negative = int(labels.sum()), int((~labels).sum())
    if not positive or not negative:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[labels].sum() - positive * (positive + 1) / 2) / (positive * negative))


def estimates(scores: Sequence[Sequence[float]], labels: Sequence[bool]) -> list[Estimate]:
    """The AUC of each score with its 95 % bootstrap interval over requests, and last the difference of the first two, paired."""
    import numpy as np

    from evaluation.statistics.bootstrap import Estimate, percentile_estimate

    columns, truth = [np.asarray(one, dtype=np.float64) for one in scores], np.asarray(labels, dtype=bool)
    if truth.all() or not truth.any():
        return [Estimate(None, None, truth.size, "all requests have the same label")] * (len(columns) + 1)
    rng, drawn = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        rows = rng.integers(truth.size, size=truth.size)
        drawn.append([auc(column[rows], truth[rows]) for column in columns])
    replicates, values = np.asarray(drawn), [auc(column, truth) for column in columns]
    each = [percentile_estimate(value, replicates[:, n], n=truth.size) for n, value in enumerate(values)]
    return [*each, percentile_estimate(values[0] - values[1], replicates[:, 0] - replicates[:, 1], n=truth.size)]


def calibrations(requests: Sequence[str]) -> tuple[str, list[Calibration]]:
    """Return who judged, and the calibration of each request as the first message of a conversation."""
    from django.conf import settings

    from agents.kit.llm.endpoints import provider_of
    from agents.models import Message
    from agents.swarm.calibration import by_rules
    from agents.swarm.models import DialogState

    if settings.ACTOR_MODEL and provider_of(settings.ACTOR_MODEL) != "offline":
        return settings.ACTOR_MODEL, [_asked(request) for request in requests]
    first = [Message(position=1, text=request, outsider="user") for request in requests]
    return "rules (heuristic)", [by_rules(trigger=one, transcript=[one], state=DialogState()) for one in first]


def _asked(request: str) -> Calibration:
    """As the model says."""
    from agents.models import Agent, Message
    from agents.swarm.calibration import calibrate
    from agents.swarm.models import DialogState, SwarmPhase
    from agents.swarm.phases import default_swarm

    trigger = Message(position=1, text=request, outsider="user")
    calibration, reply = calibrate(
        agent=Agent(slug="bench", display_name="Assistant"),
        trigger=trigger,
        transcript=[trigger],
        state=DialogState(),
        phases=[SwarmPhase(**phase) for phase in default_swarm()["phases"] if phase["phase"] == "pre"],
        deadline=60,
        nonce="bench",
    )
    if not reply.ok:
        raise SystemExit(f"the model call failed: {reply.status}: {reply.error}")
    return calibration


def asks_back(request: str, calibration: Calibration) -> bool:
    """Whether a question is asked in place of an answer to this first message."""
    from agents.swarm.clarifier import decide
    from agents.swarm.models import DialogState

    return decide(calibration, DialogState(), request).kind == "clarify"


def measure_clarify(path: Path) -> None:
    """Print the table for a file."""
    from rich.console import Console
    from rich.table import Table

    rows = read_requests(path)
    requests, labels = [request for request, _ in rows], [needs for _, needs in rows]
    who, seen = calibrations(requests)
    risk = [calibration.risk for calibration in seen]
    of_risk, of_length, difference = estimates([risk, [-len(request) for request in requests]], labels)
    table = Table(title=f"{path.name}: {len(rows)} requests, {sum(labels)} need clarification", title_justify="left")
    for heading in ("What", "AUC", "95 % interval", "Says"):
        table.add_column(heading)
    table.add_row(f"risk by {who}", *shown(of_risk, chance=0.5))
    table.add_row("length of the request alone (shorter = riskier)", *shown(of_length, chance=0.5))
    table.add_row("risk minus length", *shown(difference, chance=0.0))
    console = Console(width=150)
    console.print(table)
    asked = [asks_back(request, calibration) for request, calibration in zip(requests, seen, strict=True)]
    needed = [asks for asks, needs in zip(asked, labels, strict=True) if needs]
    clear = [asks for asks, needs in zip(asked, labels, strict=True) if not needs]
    console.print(
        f"Asked back: {sum(needed)} of the {len(needed)} that need it, {sum(clear)} of the {len(clear)} that do not."
    )


def shown(estimate: Estimate, *, chance: float) -> tuple[str, str, str]:
    """Value, interval, and what may be claimed: nothing where the interval holds chance."""
    if estimate.value is None or estimate.interval is None:
        return "-" if estimate.value is None else f"{estimate.value:.3f}", "-", f"no claim: {estimate.reason}"
    low, high = estimate.interval.low, estimate.interval.high
    says = "better than chance" if low > chance else "worse than chance" if high < chance else "no claim"
    if not chance:
        says = says.replace("better than chance", "risk is better").replace("worse than chance", "length is better")
    return f"{estimate.value:.3f}", f"{low:.3f} to {high:.3f}", says
