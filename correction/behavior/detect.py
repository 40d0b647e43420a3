"""Read one text without changing anything: the answers of the tiers, the decision, and the persona as it would be."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from agents.commands import console_on, printable
from agents.llm import Reply
from agents.llm.endpoints import model_of
from agents.models import Agent, LLMCall
from agents.persona import TraitValue, render_persona
from correction.behavior.policy import Decision, Requester, decide, made_by_requests
from correction.behavior.rules import Change, as_value, name_key, read_map, trait_json
from correction.behavior.tiers import (
    JUDGED_WITHOUT_MODEL,
    TIERS,
    Found,
    Subject,
    ask,
    found_without_model,
    next_tier,
    warnings_about,
)
from correction.behavior.words import Words, own_words
from correction.config.settings import ResolvedConfig
from evaluation.wording import judge_label

CONTEXT_LINES = 2


@dataclass(frozen=True, slots=True)
class Detection:
    """What was found in a text.

    Attributes:
        found: Tier to its answer, as far as it came.
        judge: The model asked; ``rule`` where none had to be.
        failure: Why a tier has no answer; empty when all that were asked have.
        calls: Ledger rows.
    """

    words: Words
    found: Found
    judge: str
    failure: str = ""
    calls: tuple[int, ...] = ()

    @property
    def has_request(self) -> bool:
        """Whether the gate found a request; False where it could not be asked."""
        return bool(self.found.get("gate", {}).get("has_request"))

    @property
    def confidence(self) -> str:
        """The gate's; empty where it has no answer."""
        return str(self.found.get("gate", {}).get("confidence", ""))

    def change(self, traits: Sequence[TraitValue]) -> Change | None:
        """What it would do to these traits; None where the map tier was not reached."""
        return read_map(self.found["map"], traits=traits) if "map" in self.found else None

    def cost_usd(self) -> Decimal | None:
        """US dollars of its calls; None when one has no price."""
        costs = list(LLMCall.objects.filter(pk__in=self.calls).values_list("cost_usd", flat=True))
        return None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0))


def detect(text: str, *, subject: Subject, model: str = "", last: str = "map", work_id: str = "") -> Detection:
    """Ask the tiers about a text until one of them says that there is nothing more to ask.

    Args:
        text: A message, of which only the person's own words are shown.
        subject: Whom it is addressed to.
        model: Overrides the configured judge.
        last: The last tier to ask.
        work_id: Of the ledger rows.
    """
    words = own_words(text)
    found = found_without_model(words)
    judge = JUDGED_WITHOUT_MODEL if found else model or model_of("judge")
    calls: list[int] = []
    while (tier := next_tier(found)) is not None:
        reply = ask(tier, words=words, subject=subject, found=found, work_id=work_id, model=model)
        calls += _calls(reply)
        if not reply.ok:
            return Detection(words, found, judge, f"{tier}: {reply.status}: {reply.error}", tuple(calls))
        found[tier] = reply.value
        if tier == last:
            break
    return Detection(words, found, judge, calls=tuple(calls))


def subject_of(agent: Agent) -> Subject:
    """An agent as the tiers see it, its traits as they are now."""
    return Subject(
        name=agent.display_name,
        persona=agent.system_prompt,
        traits=[as_value(trait) for trait in agent.traits.all()],
        agent_id=agent.pk,
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """A detection with what would come of it."""

    detection: Detection
    change: Change | None = None
    decision: Decision | None = None
    diff: tuple[str, ...] = field(default=())


def try_text(
    text: str, *, agent: Agent, config: ResolvedConfig, requester: Requester, applied_today: int = 0, model: str = ""
) -> Trial:
    """What would come of a message to an agent. Calls are in the ledger; nothing else is stored or changed."""
    subject = subject_of(agent)
    traits = [as_value(trait) for trait in subject.traits]
    detection = detect(text, subject=subject, model=model)
    change = detection.change(traits)
    if change is None:
        return Trial(detection)
    decision = decide(
        change=change,
        confidence=detection.confidence,
        text=text,
        requester=requester,
        config=config,
        applied_today=applied_today,
        made=made_by_requests(agent.pk),
    )
    return Trial(detection, change, decision, tuple(_diff(subject.persona, traits, change)))


def _diff(persona: str, traits: Sequence[TraitValue], change: Change) -> list[str]:
    """The rendered persona before and after, as a unified diff without its header; empty where nothing changes."""
    if change.after is None:
        return []
    gone = name_key(change.before.name) if change.before is not None else None
    after = [*(trait for trait in traits if name_key(trait.name) != gone), change.after]
    old, new = (render_persona(system_prompt=persona, traits=some).splitlines() for some in (traits, after))
    return list(difflib.unified_diff(old, new, lineterm="", n=CONTEXT_LINES))[2:]


def _calls(reply: Reply) -> list[int]:
    return [one.call_id for one in (*reply.earlier, reply) if one.call_id is not None]


_QUESTIONS = {"gate": "Is a change asked for?", "extract": "Of which behaviour?", "map": "As which trait?"}
_VERDICTS = {
    "apply": "It would be applied by itself.",
    "review": "It would wait for a person:",
    "drop": "Nothing would come of it:",
}


def trial_json(agent: Agent, trial: Trial) -> dict[str, Any]:
    """The trial as data. Tiers that were not asked are null, and so are change and decision where it did not come to them."""
    detection, change, decision = trial.detection, trial.change, trial.decision
    cost = detection.cost_usd()
    return {
        "agent": agent.slug,
        "judge": detection.judge,
        "has_request": detection.has_request,
        "confidence": detection.confidence or None,
        **{tier: detection.found.get(tier) for tier in TIERS},
        "operation": change.operation if change is not None else "none",
        "trait_before": trait_json(change.before) if change is not None and change.before is not None else None,
        "trait_after": trait_json(change.after) if change is not None and change.after is not None else None,
        "decision": {"verdict": decision.verdict, "reasons": list(decision.reasons)} if decision is not None else None,
        "warnings": warnings_of(trial),
        "persona_diff": list(trial.diff),
        "characters_quoted": detection.words.quoted,
        "characters_cut": detection.words.cut,
        "failure": detection.failure,
        "calls": len(detection.calls),
        "cost_usd": None if cost is None else float(cost),
    }


def show_trial(agent: Agent, trial: Trial, out: Any) -> None:
    """The trial for people: the tiers, what would come of it, the persona before and after."""
    console, detection = console_on(out), trial.detection
    table = Table(box=box.SIMPLE_HEAD, title=f"A message to {_text(agent.display_name)}", title_justify="left")
    for heading in ("Tier", "Question", "Answer"):
        table.add_column(heading, overflow="fold")
    for tier in TIERS:
        answer = detection.found.get(tier)
        table.add_row(tier, _QUESTIONS[tier], _text("not asked" if answer is None else _answer(tier, answer)))
    console.print(table)
    for warning in warnings_of(trial):
        console.print(_text(f"Note: {warning}."), style="yellow")
    if detection.failure:
        console.print(_text(f"No answer. {detection.failure}"), style="red")
    elif trial.decision is None:
        console.print(
            "No change is asked for." if not detection.has_request else "Which behaviour is meant is not clear."
        )
    else:
        console.print(_text("\n  ".join((_VERDICTS[trial.decision.verdict], *trial.decision.reasons))))
    if trial.diff:
        console.print("\nThe persona, before and after:", style="bold")
        for line in trial.diff:
            console.print(_text(line), style={"+": "green", "-": "red"}.get(line[:1], ""))
    cost = detection.cost_usd()
    spent = "unpriced" if cost is None else f"${cost:.4f}"
    calls = len(detection.calls)
    console.print(
        _text(
            f"\nJudge: {judge_label(detection.judge)}; {calls} call{'s' * (calls != 1)}, {spent}. Nothing was changed."
        )
    )


def warnings_of(trial: Trial) -> list[str]:
    """What was odd about message and answers."""
    found = warnings_about(trial.detection.words, trial.detection.found)
    return [*found, *(trial.change.warnings if trial.change is not None else ())]


def _text(text: str) -> str:
    """What models and personas say, without effect on the terminal."""
    return escape(printable(text))


def _answer(tier: str, answer: dict[str, Any]) -> str:
    if tier == "gate":
        return f"{'yes' if answer['has_request'] else 'no'}, confidence {answer['confidence']}. {answer['reason']}"
    if not answer or not any(answer.values()):
        return "nothing"
    return "\n".join(f"{name}: {value}" for name, value in answer.items() if value not in ("", None))
