"""The report of a laboratory as lines and tables, for terminal, Markdown, CSV and console."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agents.kit.commands import Cell, Emphasis
from agents.kit.text.wording import counted, decimal, money, percentage, signed
from evaluation.dimensions import Dimension
from evaluation.experiments.repairs import (
    LabArm,
    LabReport,
    RepairEffect,
    lasting_text,
    onset_text,
)
from evaluation.experiments.report import p_text

EFFECT_HEADS = ["Repair", "Measure", ">Score", ">Control", ">Δ", "95 % interval", ">p", "Holds for", "Verdict"]
COST_HEADS = ["Arm", ">Forks", ">Turns", ">All turns", ">Per turn", ">Per turn, against control", ">Control questions"]
ANSWER_HEADS = ["Arm", ">Same answer", ">Pairs", ">Not known", ">No answer"]
RULE_HEADS = [
    "Arm",
    ">States, keeps",
    ">States, breaks",
    ">Silent, keeps",
    ">Silent, breaks",
    ">Rules, all forks",
    ">Not known",
]
VIOLATED_HEADS = ["Arm", "Rule that is stated and broken", ">Forks"]
_EMPHASIS: dict[str, Emphasis] = {"repairs": "good", "harms": "bad"}
_BY_WORDS = "by words alone, heuristic"

TableParts = tuple[str, Sequence[str], list[list[Cell]]]  # title, heads, rows


def lab_lines(lab: LabReport) -> Iterator[str]:
    """Yield what came of the repairs in a sentence, since when the agent has drifted, and what was played."""
    yield lab.sentence
    for onset in lab.onsets:
        yield onset_text(onset)
    forks = counted(sum(arm.forks for arm in lab.arms), "fork")
    replayed = (
        f"{lab.replayed} of them after the real messages that followed" if lab.replayed else "after scripted lines"
    )
    yield (
        f"{forks} of {lab.channel} at message {lab.position} (turn {lab.turn} of {lab.agent_name}), {counted(lab.turns, 'turn')} each, "
        f"{replayed}. The conversation itself was only read. What holds for these forks need not hold for other conversations."
    )


def lab_tables(lab: LabReport) -> Iterator[TableParts]:
    """Yield the tables of the report: those about control questions only where some were asked, those of scores once arms are compared."""
    if lab.is_compared:
        yield "Repairs", EFFECT_HEADS, [_effect_row(arm, effect) for arm in lab.repairs for effect in arm.effects]
    yield "Cost in US dollars", COST_HEADS, [_cost_row(arm) for arm in lab.arms]
    if lab.questions:
        by_words = any(arm.answers.heuristic for arm in lab.arms)
        title = _title("Does it give the same answer when asked again?", heuristic=by_words)
        yield title, ANSWER_HEADS, [_answer_row(arm) for arm in lab.arms]
    if not lab.is_compared:
        return
    if lab.questions:
        by_words = any(arm.rules.heuristic for arm in lab.arms)
        title = _title("Does it know its rules, and keep them?", heuristic=by_words)
        yield title, RULE_HEADS, [_rule_row(arm) for arm in lab.arms]
        violated = list(_violated_rows(lab))
        if violated:
            yield _title("Knows but violates", heuristic=by_words), VIOLATED_HEADS, violated
    for dimension in lab.arms[0].by_turn if lab.arms else ():
        title = f"{Dimension(dimension).label}, mean score by turn after the fork"
        yield title, [">Turn", *(f">{arm.label}" for arm in lab.arms)], list(_turn_rows(lab, dimension))


def _title(title: str, *, heuristic: bool) -> str:
    return f"{title} ({_BY_WORDS})" if heuristic else title


def _effect_row(arm: LabArm, effect: RepairEffect) -> list[Cell]:
    verdict: str = effect.verdict
    if effect.why and effect.verdict == "not shown":
        verdict += f": {effect.why}"
    interval = None
    if effect.interval is not None:
        low, high = effect.interval
        interval = f"{signed(low, 2)} to {signed(high, 2)}"
    return [
        arm.label,
        effect.label,
        _score(effect.mean),
        _score(effect.control_mean),
        signed(effect.shown_delta, 2),
        interval,
        p_text(effect.p),
        None if effect.lasting is None else lasting_text(effect.lasting),
        (verdict, _EMPHASIS.get(effect.verdict, "")),
    ]


def _score(value: float | None) -> str:
    return "–" if value is None else decimal(value, 2)


def _cost_row(arm: LabArm) -> list[Cell]:
    extra = "–"
    if arm.effects:
        extra = "unpriced" if arm.extra_usd is None else signed(arm.extra_usd, 4)
    return [
        arm.label,
        arm.forks,
        arm.turns,
        money(arm.usd),
        money(arm.usd_per_turn) if arm.turns else "–",
        extra,
        money(arm.questions_usd),
    ]


def _answer_row(arm: LabArm) -> list[Cell]:
    share = arm.answers.share
    return [
        arm.label,
        "–" if share is None else percentage(share),
        arm.answers.pairs,
        arm.answers.unknown,
        arm.answers.silent,
    ]


def _rule_row(arm: LabArm) -> list[Cell]:
    rules = arm.rules
    breaks: Cell = rules.states_breaks
    if rules.states_breaks and not rules.heuristic:
        breaks = (str(rules.states_breaks), "bad")
    return [
        arm.label,
        rules.states_keeps,
        breaks,
        rules.silent_keeps,
        rules.silent_breaks,
        rules.n,
        rules.unknown,
    ]


def _violated_rows(lab: LabReport) -> Iterator[list[Cell]]:
    for arm in lab.arms:
        for rule, forks in arm.rules.knows_but_violates.items():
            yield [arm.label, rule, forks]


def _turn_rows(lab: LabReport, dimension: str) -> Iterator[list[Cell]]:
    for turn in range(lab.turns):
        yield [turn + 1, *(_score(arm.by_turn[dimension][turn]) for arm in lab.arms)]


def lab_csv_fields(lab: LabReport) -> Iterator[dict[str, Any]]:
    """Yield the columns of each repair and dimension; intervals as two columns."""
    for arm in lab.repairs:
        for effect in arm.effects:
            fields = {"arm": arm.label} | effect.model_dump(exclude={"interval", "lasting"})
            fields["interval_low"], fields["interval_high"] = effect.interval or (None, None)
            for name in ("turns", "low", "high", "of"):
                fields[f"lasting_{name}"] = getattr(effect.lasting, name, None)
            fields["extra_usd_per_turn"] = arm.extra_usd
            yield fields
