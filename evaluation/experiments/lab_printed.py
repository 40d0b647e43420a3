"""The report of a laboratory as lines and tables, for terminal, Markdown, CSV and console."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agents.kit.commands import Cell, Emphasis
from agents.kit.text.wording import counted, decimal, money, signed
from evaluation.experiments.repairs import (
    LabArm,
    LabReport,
    RepairEffect,
    lasting_text,
    onset_text,
)

EFFECT_HEADS = ["Repair", "Measure", ">Score", ">Control", ">Δ", "95 % interval", ">p", "Holds for", "Verdict"]
COST_HEADS = ["Arm", ">Forks", ">Turns", ">US dollars", ">A turn", ">More a turn", ">Control questions"]
ANSWER_HEADS = ["Arm", ">Same answer", ">Pairs", ">Not known"]
RULE_HEADS = ["Arm", ">States, keeps", ">States, breaks", ">Silent, keeps", ">Silent, breaks", ">n", ">Not known"]
VIOLATED_HEADS = ["Arm", "Rule that is stated and broken", ">Forks"]
TURN_HEADS = ["Arm", "Measure", "Mean score, turn by turn"]
_EMPHASIS: dict[str, Emphasis] = {"repairs": "good", "harms": "bad"}
_HEURISTIC_ANSWERS = "Same answer (by words alone, heuristic)"

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
    """Yield the tables of the report; those about control questions only where some were asked."""
    yield "Repairs", EFFECT_HEADS, [_effect_row(arm, effect) for arm in lab.repairs for effect in arm.effects]
    yield "Cost", COST_HEADS, [_cost_row(arm) for arm in lab.arms]
    if lab.questions:
        is_heuristic = any(arm.answers.heuristic for arm in lab.arms)
        heads = [ANSWER_HEADS[0], f">{_HEURISTIC_ANSWERS}", *ANSWER_HEADS[2:]] if is_heuristic else ANSWER_HEADS
        yield "Does it give the same answer when asked again?", heads, [_answer_row(arm) for arm in lab.arms]
        yield "Does it know its rules, and keep them?", RULE_HEADS, [_rule_row(arm) for arm in lab.arms]
        violated = list(_violated_rows(lab))
        if violated:
            yield "Knows but violates", VIOLATED_HEADS, violated
    lines = list(_turn_rows(lab))
    if lines:
        yield "Turn by turn after the fork", TURN_HEADS, lines


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
        signed(effect.delta, 2),
        interval,
        "–" if effect.p is None else f"{effect.p:.3f}",
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
    return [arm.label, "–" if share is None else f"{share:.0%}", arm.answers.pairs, arm.answers.unknown]


def _rule_row(arm: LabArm) -> list[Cell]:
    rules = arm.rules
    breaks: Cell = (str(rules.states_breaks), "bad") if rules.states_breaks else rules.states_breaks
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


def _turn_rows(lab: LabReport) -> Iterator[list[Cell]]:
    for arm in lab.arms:
        for dimension, means in arm.by_turn.items():
            yield [arm.label, dimension, " ".join("–" if mean is None else decimal(mean, 1) for mean in means)]


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
