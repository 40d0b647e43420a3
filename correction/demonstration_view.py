"""What `manage.py demo` prints of the scenes of correction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings

from agents.llm.ledger import totals
from agents.models import LLMCall, owner_name
from agents.turn import timeline
from agents.turn.prompt import preview_prompt
from agents.turn.values import SendResult
from correction import demonstration as scenes
from correction import observe
from correction.models import CorrectionLog, InterventionLog, Outcome
from correction.repetition import check_repetition
from correction.statistics import get_gate_statistics
from evaluation.models import is_heuristic
from evaluation.presentation import judge_label, money

WORDS = 96  # characters of a text shown on one line


def show_correction(out: Any, *, again: bool = False) -> None:
    """Play the scenes of specification 000 and say what happened; where they were played before, say only where to find them.

    Args:
        out: The command's output.
        again: Play them anew.

    Raises:
        LookupError: An example agent is missing.
    """
    if (before := scenes.earlier()) is not None and not again:
        drafts = CorrectionLog.objects.filter(channel=before).count()
        out.write(
            f"Shown before: {drafts} checked drafts in channel {before.slug}, see Correction logs in the console."
        )
        out.write("--again plays the scenes anew.")
        return
    stage = scenes.set_up()
    out.write(f"Judge {judge_label(str(settings.JUDGE_MODEL))}, actor {settings.ACTOR_MODEL}.")
    out.write(f"Channel {stage.channel.slug}, marked synthetic: what is said in it enters no measurement.")
    _gate_scenes(out, stage)
    _observed_scene(out, stage)
    _nudge_scene(out, stage)
    _repetition_scene(out, stage)
    _sums(out, stage)


def _gate_scenes(out: Any, stage: scenes.Stage) -> None:
    calls, logs = LLMCall.objects.count(), CorrectionLog.objects.count()
    sent = scenes.attempts(stage, "michael", [scenes.UNCHECKED], overrides=scenes.OFF)
    more = LLMCall.objects.count() - calls, CorrectionLog.objects.count() - logs
    _scene(out, "Everything off (the default)", sent)
    out.write(f"     {more[0]} model calls, {more[1]} log rows")
    on = scenes.gate_settings()
    _scene(
        out, "A message in character, gate on", scenes.attempts(stage, "michael", [scenes.IN_CHARACTER], overrides=on)
    )
    results = scenes.attempts(stage, "michael", (scenes.OFF_CHARACTER, scenes.RECOVERED), overrides=on)
    _scene(out, "A draft out of character, and what the agent writes instead", results)
    results = scenes.attempts(stage, "michael", scenes.ATTEMPTS, overrides=on)
    _scene(out, "Three drafts out of character: when all fail, the best of them is sent, not the last", results)


def _observed_scene(out: Any, stage: scenes.Stage) -> None:
    watched = scenes.take_turn(stage, stage.channel, "michael", overrides=scenes.gate_settings("observe"))
    while observe.work_one(owner=owner_name()):
        pass
    _title(out, "Observe: said at once, judged afterwards, nothing held back")
    logs = CorrectionLog.objects.filter(run=watched, outcome=Outcome.OBSERVED)
    if not logs:
        out.write(f"     the actor said nothing: {watched.error or watched.get_stop_reason_display()}")
    for log in logs.prefetch_related("dimension_results"):
        scores = [f"{r.dimension} {_number(r.score)}, needs {r.threshold:g}" for r in log.dimension_results.all()]
        out.write(f"     said      “{_short(log.judged_text)}”")
        out.write(f"     observed  {'; '.join(scores)}")


def _nudge_scene(out: Any, stage: scenes.Stage) -> None:
    scenes.lay_down(stage, stage.picnic, scenes.AGREEING)
    run = scenes.take_turn(stage, stage.picnic, "dwight", overrides={**scenes.OFF, "anti_convergence_enabled": True})
    _title(out, "Four agents agree with each other: a judge is asked whether the fifth needs a nudge")
    for log in InterventionLog.objects.filter(run=run):
        out.write(f"     {log.name} {'fired' if log.fired else 'did not fire'}: {log.why}")
        if log.nudge:
            out.write(f"     nudge     “{_short(log.nudge)}” (in the prompt of this turn only)")
    if is_heuristic(str(settings.JUDGE_MODEL)):
        out.write(
            "     Agreement in people's own words is nothing that words alone tell: with a model as JUDGE_MODEL it is scored."
        )
    for line in timeline.lines(run):
        out.write(f"     {line}")


def _repetition_scene(out: Any, stage: scenes.Stage) -> None:
    scenes.lay_down(stage, stage.channel, scenes.REPEATING)
    phyllis = stage.agent("phyllis")
    result = check_repetition(phyllis, channel=stage.channel)
    _title(out, "Five messages that begin alike: the agent is shown what to avoid")
    out.write(f"     overlap   {result.overlap:.0%} of the 3-grams recur (threshold {result.threshold:.0%})")
    overrides = {**scenes.OFF, "repetition_suppression_enabled": True}
    shown = preview_prompt(agent=phyllis, channel=stage.channel, overrides=overrides)
    for section in shown.sections:
        if section.stage == "repetition":
            out.write(f"     prompt    ### {section.heading}, added by the stage {section.stage}")
            for line in filter(str.strip, section.body.splitlines()):
                out.write(f"               {line}")
    out.write("     The scripted actor reads no prompt; with an LLM as actor the next message follows from it.")


def _sums(out: Any, stage: scenes.Stage) -> None:
    statistics = get_gate_statistics(agent=stage.agent("michael"), synthetic=True)
    _title(out, "What the gate did for michael")
    rate = statistics.original_success_rate
    out.write(
        f"     {statistics.total_actions} messages, "
        f"{statistics.original_pass_count} of {statistics.judged_count} judged first drafts passed"
        + (f" ({rate:.0%})" if rate is not None else "")
        + f", {statistics.regeneration_count} drafts written anew, {statistics.forced_through_count} forced through"
    )
    spent = totals(LLMCall.objects.filter(purpose__in=["gate", "intervention"]))
    unpriced = f" and {spent.unpriced} unpriced" if spent.unpriced else ""
    out.write(
        f"     correction of all agents so far: {spent.calls} judgements asked, {money(spent.cost_usd)}{unpriced}"
    )
    out.write("     manage.py costs --by dimension     and: Correction logs in the console")


def _title(out: Any, title: str) -> None:
    out.write(f"\n   {title}")


def _scene(out: Any, title: str, drafts: Sequence[tuple[str, SendResult]]) -> None:
    _title(out, title)
    for number, (draft, result) in enumerate(drafts, 1):
        out.write(f"     draft {number}   “{_short(draft)}”")
        for name, check in result.reports.get("gate", {}).get("dimensions", {}).items():
            mark = "✓" if check["passed"] else "✗"
            out.write(
                f"       {mark} {name} {_number(check['score'])}, needs {check['threshold']:g}: {_short(check['reasoning'])}"
            )
        out.write(
            f"     → {result.outcome}"
            + (f": “{_short(result.text)}”" if result.committed else ": sent back with feedback")
        )


def _number(score: float | None) -> str:
    return "not judged" if score is None else f"{score:g}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WORDS else line[: WORDS - 1] + "…"
