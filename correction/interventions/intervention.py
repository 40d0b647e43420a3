"""An intervention and its three kinds of preconditions: textual and propositional ones ask a judge, functional ones count (S-7.1).

It is dormant until all preconditions hold, then it changes the agent's prompt for one turn. An operator writes one down as a row of
`correction.interventions.models.Intervention`; `builtin.from_row` makes these of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar, Literal, Self

from agents.kit.llm import Label
from agents.models import Agent
from correction.interventions.functions import LONGEST_WINDOW, Finding, InterventionContext, function_named
from evaluation.judge.checks import Check, CheckResult
from evaluation.judge.questions import Question
from evaluation.judge.verdicts import Verdict
from evaluation.propositions.schema import Cues, Proposition, fill
from evaluation.scorers.context import Context, Event, Window
from evaluation.scorers.subjects import event_of

Kind = Literal["textual", "functional", "propositional"]
About = Literal["conversation", "agent"]
NEEDS_JUDGE = "needs an LLM judge"
LONGEST_NAME = 80  # as the log's column


@dataclass(frozen=True, slots=True, kw_only=True)
class PreconditionResult:
    """The result of one precondition, as the log stores it.

    Attributes:
        held: None when it was not asked or could not be judged; `reasoning` says why. It does not fire then.
        score: 0 to 9 of a scored proposition; what a function measured.
        threshold: What the score of a proposition is compared with.
        judge: The model asked; empty where none was.
    """

    kind: Kind
    text: str
    held: bool | None
    reasoning: str = ""
    score: float | None = None
    threshold: float | None = None
    judge: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionalPrecondition:
    """A function of the context: no model, no cost. It may return a bool or a `Finding` that says what it measured."""

    kind: ClassVar[Kind] = "functional"
    test: Callable[[InterventionContext], Finding | bool]
    text: str

    @classmethod
    def named(cls, name: str, parameters: Mapping[str, Any] | None = None) -> FunctionalPrecondition:
        """Return the precondition of a registered function with its parameters.

        Raises:
            ValueError: There is no such function, or the parameters do not fit it.
        """
        arguments = dict(parameters or {})
        listed = ", ".join(f"{key}={value!r}" for key, value in sorted(arguments.items()))
        return cls(test=function_named(name).bind(arguments), text=f"{name}({listed})")

    def evaluate(self, context: InterventionContext) -> PreconditionResult:
        """Call the function; return whether it holds, with what it measured. A `Finding` of None is a result that could not be judged.

        Raises:
            TypeError: It returned neither a bool nor a `Finding` of one or None; and what the function itself raises.
        """
        answer: object = self.test(context)
        finding = Finding(answer) if isinstance(answer, bool) else answer
        if not isinstance(finding, Finding) or not isinstance(finding.held, bool | None):
            name = getattr(self.test, "__name__", self.text)
            raise TypeError(
                f"function {name} returned {answer!r:.80}; allowed: True, False, or a Finding of one or None"
            )
        if finding.held is None:
            return not_judged(self.kind, self.text, finding.reasoning)
        return PreconditionResult(
            kind=self.kind, text=self.text, held=finding.held, reasoning=finding.reasoning, score=finding.score
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PropositionalPrecondition:
    """A proposition of the measuring engine. Without a threshold it fires when the claim holds; with one, when its score is below.

    With `fires_below` False it fires when the score is at the threshold or above: for claims that describe what to act against.

    Raises:
        ValueError: The proposition has a rule or a precondition of its own: both are about one message, this is about a conversation.
    """

    proposition: Proposition
    threshold: Decimal | None = None
    fires_below: bool = True
    kind: Kind = "propositional"

    def __post_init__(self) -> None:
        if self.proposition.rule is not None or self.proposition.precondition is not None:
            raise ValueError(
                f"{self.proposition.id}: rule and precondition are about one message; an intervention looks at a conversation"
            )

    @property
    def text(self) -> str:
        return self.proposition.claim

    def ask(self, context: InterventionContext, label: Label, nonce: str) -> tuple[str, Check | Question]:
        """Return the claim with its variables filled in, and the question: whether it holds, or, with a threshold, a score for it.

        The judge is shown the persona only where the claim is about the agent and the proposition asks for it.

        Raises:
            ValueError: The claim uses a variable that has no value here.
        """
        proposition = self.proposition
        about: About = "agent"
        persona = None
        if proposition.target_type == "environment":
            about = "conversation"
        elif proposition.include_personas:
            persona = context.surroundings.persona
        context_for_judge = judge_context(context, about=about, persona=persona)
        claim = fill(self.text, context_for_judge.variables())
        if self.threshold is None:
            return claim, Check(proposition=proposition, context=context_for_judge, label=label, gate=True, nonce=nonce)
        return claim, Question(
            propositions=(proposition,), context=context_for_judge, label=label, gate=True, nonce=nonce
        )

    def read(self, claim: str, answer: CheckResult | Sequence[Verdict]) -> PreconditionResult:
        """Return what the judge's answer says, where the claim was asked in these words."""
        if isinstance(answer, CheckResult):
            return self._read_check(claim, answer)
        return self._read_score(claim, answer[0])

    def _read_check(self, claim: str, answer: CheckResult) -> PreconditionResult:
        """Return the result of a claim that was asked for true or false."""
        if answer.holds is None:
            return not_judged(self.kind, claim, answer.reason, answer.judge)
        reasoning = " ".join(filter(None, (answer.reasoning, answer.justification)))
        return PreconditionResult(
            kind=self.kind, text=claim, held=answer.holds, reasoning=reasoning, judge=answer.judge
        )

    def _read_score(self, claim: str, verdict: Verdict) -> PreconditionResult:
        """Return the result of a claim that was scored, compared with the threshold; not judged where there is no score to compare."""
        # The 9 of a claim that could not be false here (`trivial`) is no score of it, by which something could fire. What fires below a
        # threshold cannot fire by a 9, so that there it may count.
        is_score = verdict.status != "trivial" or self.fires_below
        if self.threshold is None or verdict.value is None or not is_score:
            return not_judged(self.kind, claim, verdict.reason, verdict.judge)
        is_below = verdict.value < self.threshold
        return PreconditionResult(
            kind=self.kind,
            text=claim,
            held=is_below if self.fires_below else not is_below,
            reasoning=verdict.reasoning or verdict.reason,
            score=verdict.value,
            threshold=float(self.threshold),
            judge=verdict.judge,
        )


class TextualPrecondition(PropositionalPrecondition):
    """A claim in plain language: given this conversation, is it true? (AC-7.1.5)

    Args:
        claim: May use ``{{agent_name}}`` and ``{{channel_name}}``.
        cues: What the offline judge may go by; without them it cannot judge the claim.
        about: Whose words the claim is about: those of all, or the agent's.
    """

    def __init__(self, *, claim: str, cues: Cues | None = None, about: About = "conversation") -> None:
        """Make a precondition of a claim that is asked for true or false, with no persona in sight.

        Args:
            cues: By which an offline judge finds out; None: it cannot judge the claim.
            about: Whom the claim is about: all who take part (``conversation``), or the agent.
        """
        proposition = Proposition(
            dimension="",  # it measures none
            id="precondition",
            claim=claim,
            cues=cues,
            include_personas=False,
            target_type="environment" if about == "conversation" else "agent",
        )
        super().__init__(proposition=proposition, kind="textual")


AnyPrecondition = FunctionalPrecondition | PropositionalPrecondition


def judge_context(context: InterventionContext, *, about: About, persona: str | None = None) -> Context:
    """Return the conversation as the judge is shown it: that of all who take part, or as it looks from the agent's place.

    Args:
        about: ``conversation``: each message is an action, and the channel stands for the agent. ``agent``: only its own messages are.
        persona: None: the judge is shown none.
    """
    channel = str(context.channel)
    if about == "conversation":
        events = [Event("action", message.author_name, message.text) for message in context.messages]
        agent_name = channel
    else:
        events = [event_of(context.agent, message) for message in context.messages]
        agent_name = context.agent.display_name
    return Context(
        agent_name=agent_name,
        persona=persona,
        window=Window(tuple(events), 0, ()),
        channel_name=channel,
        environment=about == "conversation",
    )


def not_asked(precondition: AnyPrecondition, reason: str) -> PreconditionResult:
    """Return the result of a precondition that was not asked."""
    return PreconditionResult(
        kind=precondition.kind, text=precondition.text, held=None, reasoning=f"not asked: {reason}"
    )


def not_judged(kind: Kind, text: str, reason: str, judge: str = "") -> PreconditionResult:
    """Return the result of a precondition that could not be judged."""
    if NEEDS_JUDGE in reason:  # the offline judge's own words, without the status of the call
        reason = reason[reason.index(NEEDS_JUDGE) :]
    return PreconditionResult(kind=kind, text=text, held=None, reasoning=f"could not be judged: {reason}", judge=judge)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptModification:
    """What an effect adds to the agent's prompt, for this turn only. `nudge_type` names its kind in the log."""

    guidance: str
    nudge_type: str = ""


Effect = Callable[[InterventionContext], PromptModification]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """Preconditions and an effect. Immutable, so that nothing can leak from one agent, channel or batch into another.

    Attributes:
        name: In logs and costs: anti_convergence, variety, an operator's slug; 1 to 80 characters.
        preconditions: All must hold (AC-7.1.2); at least one.
        effect: What is added to the prompt when they do.
        window: Last messages of the channel that are looked at, 1 to 100.
        cooldown_messages: Messages in the channel after it fired before it may fire again; 0 = none.
        ask_every: Messages in the channel after a judge was asked, in any agent's turn, before it is asked again; 0 = ask every time.
        dm_allowed: Also in direct messages.
        agent_id: The agent it is for; None = any.
        row_id: The operator's row it was made of.

    Raises:
        ValueError: It has no precondition, or a number is out of range.
    """

    name: str
    preconditions: tuple[AnyPrecondition, ...]
    effect: Effect
    window: int = 10
    cooldown_messages: int = 5
    ask_every: int = 0
    dm_allowed: bool = False
    agent_id: int | None = None
    row_id: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that are not allowed.

        Raises:
            ValueError: Names the value and what is allowed.
        """
        if not 1 <= len(self.name) <= LONGEST_NAME:
            raise ValueError(
                f"the name {self.name[:100]!r} has {len(self.name)} characters; allowed: 1 to {LONGEST_NAME}"
            )
        label = f"intervention {self.name!r}"
        if not self.preconditions:
            raise ValueError(f"{label} has no precondition; it needs at least one")
        if not 1 <= self.window <= LONGEST_WINDOW:
            raise ValueError(f"{label}: window is {self.window}; allowed: 1 to {LONGEST_WINDOW}")
        if self.cooldown_messages < 0:
            raise ValueError(f"{label}: cooldown_messages is {self.cooldown_messages}; allowed: 0 or more")

    @property
    def functional(self) -> tuple[FunctionalPrecondition, ...]:
        """Return the preconditions that cost nothing."""
        return tuple(p for p in self.preconditions if isinstance(p, FunctionalPrecondition))

    @property
    def judged(self) -> tuple[PropositionalPrecondition, ...]:
        """Return the preconditions that ask a judge."""
        return tuple(p for p in self.preconditions if not isinstance(p, FunctionalPrecondition))


@dataclass(frozen=True, slots=True)
class InterventionBatch:
    """The same intervention for several agents. Batches share no state: each agent's intervention is a value of its own."""

    interventions: tuple[Intervention, ...] = ()

    @classmethod
    def create_for_each(
        cls, agents: Iterable[Agent], *, preconditions: Iterable[AnyPrecondition], **settings: Any
    ) -> Self:
        """Return one intervention per agent, with the same preconditions and effect (AC-7.1.4); `settings` are those of `Intervention`.

        Raises:
            ValueError: See `Intervention`.
        """
        shared = Intervention(preconditions=tuple(preconditions), **settings)
        return cls(tuple(replace(shared, agent_id=agent.pk) for agent in agents))

    def for_agent(self, agent: Agent) -> tuple[Intervention, ...]:
        """Return those that are for this agent."""
        return tuple(intervention for intervention in self.interventions if intervention.agent_id == agent.pk)
