"""Asking for drafts of propositions about agents. Nothing is stored here: what comes back can be written to a file, or only looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from agents.llm import Label, LLMRequest, Reply, Status, complete_many
from agents.llm.ledger import Totals, totals
from agents.models import Agent
from agents.persona import render_persona
from agents.text.fences import new_nonce
from evaluation.drafting.asking import draft_request
from evaluation.drafting.sameness import Existing
from evaluation.drafting.validation import Draft, Dropped, Sieve
from evaluation.models import is_heuristic
from evaluation.propositions.files import DEFAULT, LoadedFile, applying, load_all
from evaluation.runs.budget import why_over_budget

DIMENSION = "adherence"
MOST = 8  # proposals for one persona
PURPOSE = "drafting"
NOTHING_EXACT = "the persona says nothing that an exact rule could check; an LLM judge can propose claims and cues"
AGAIN = (Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Drafted:
    """What was proposed about one agent.

    Attributes:
        agent: Whose persona it is.
        judge: The model asked.
        drafts: What can be used.
        dropped: What cannot, each with the reason.
        reason: Why there is no draft; empty when there is one.
        failed: Whether no usable answer came.
        spent: Calls, tokens and cost.
    """

    agent: Agent
    judge: str
    drafts: tuple[Draft, ...]
    dropped: tuple[Dropped, ...]
    reason: str
    failed: bool
    spent: Totals


def draft_propositions(*, agent: Agent, model: str = "", most: int = MOST, known: Sequence[LoadedFile] = ()) -> Drafted:
    """Propose claims, rules, cues and anti-patterns from one agent's persona; see `draft_for`."""
    return next(draft_for(agents=[agent], model=model, most=most, known=known))


def draft_for(
    *,
    agents: Sequence[Agent],
    model: str = "",
    most: int = MOST,
    known: Sequence[LoadedFile] = (),
    done: Callable[[Agent], None] = lambda agent: None,
) -> Iterator[Drafted]:
    """Propose propositions from the personas of several agents, asked at the same time.

    What exists already, active, waiting or rejected, is not proposed again. Every call has its row in the ledger.

    Args:
        agents: Whose.
        model: Overrides the configured judge.
        most: Most drafts per agent, at least 1.
        known: Files outside of the folders that are read, whose propositions are not to be proposed again either.
        done: Called for each agent as its answer arrives.

    Yields:
        One per agent, in their order.

    Raises:
        ValueError: `most` makes no sense.
        PropositionError: Proposition files cannot be used, so that nobody knows what exists.
    """
    if not 1 <= most <= 50:
        raise ValueError(f"max {most}: 1 to 50")
    files, judge = [*load_all(), *known], model or str(settings.JUDGE_MODEL)
    names = list(Agent.objects.values_list("display_name", flat=True))
    tasks = [_Task.about(agent, judge, most, files, names) for agent in agents]
    over = {task.agent.pk: reason for task in tasks if (reason := why_over_budget(task.agent, judge))}
    asked = [task for task in tasks if task.agent.pk not in over]
    replies: dict[int, Reply] = {}
    for again in (False, True):
        open_tasks = [t for t in asked if t.agent.pk not in replies or replies[t.agent.pk].status in AGAIN]
        requests = [task.request(again=again) for task in open_tasks]
        for index, reply in complete_many(iter(requests), deadline=settings.LLM_EVALUATION_DEADLINE):
            replies[open_tasks[index].agent.pk] = reply
            if again or reply.status not in AGAIN:
                done(open_tasks[index].agent)
    for task in tasks:
        yield task.read(replies.get(task.agent.pk), over.get(task.agent.pk, ""))


@dataclass(frozen=True, slots=True)
class _Task:
    """One agent, and what there is about it already."""

    agent: Agent
    judge: str
    most: int
    persona: str
    existing: tuple[Any, ...]
    taken: frozenset[str]
    others: tuple[str, ...]
    nonce: str

    @classmethod
    def about(cls, agent: Agent, judge: str, most: int, files: Sequence[LoadedFile], names: Sequence[str]) -> _Task:
        same = [f for f in applying(files, seeded=agent.seeded) if f.dimension == DIMENSION and f.level == "evaluation"]
        existing = [p for f in same if f.agent_id in (agent.slug, DEFAULT) for p in (*f.propositions, *f.drafts)]
        return cls(
            agent=agent,
            judge=judge,
            most=most,
            persona=render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all()),
            existing=tuple(existing),
            taken=frozenset(p.id for f in files for p in (*f.propositions, *f.drafts)),
            others=tuple(name for name in names if name != agent.display_name),
            nonce=new_nonce(),
        )

    @property
    def work_id(self) -> str:
        return f"{PURPOSE}:{self.agent.pk}:{self.nonce}"

    def request(self, *, again: bool) -> LLMRequest:
        return draft_request(
            name=self.agent.display_name,
            persona=self.persona,
            existing=[p.claim for p in self.existing],
            others=self.others,
            most=self.most,
            label=Label(purpose=PURPOSE, dimension=DIMENSION, agent_id=self.agent.pk, work_id=self.work_id),
            model=self.judge,
            nonce=self.nonce,
            again=again,
        )

    def read(self, reply: Reply | None, over_budget: str) -> Drafted:
        spent = totals(work_id=self.work_id)
        if reply is None or not reply.ok:
            reason = over_budget or (f"{reply.status}: {reply.error}" if reply is not None else "not asked")
            return Drafted(self.agent, self.judge, (), (), reason, failed=True, spent=spent)
        sieve = Sieve(
            self.agent.slug,
            self.agent.display_name,
            self.persona,
            [Existing.of(p) for p in self.existing],
            set(self.taken),
        )
        found = list(sieve.sift(reply.value, most=self.most))
        drafts = tuple(one for one in found if isinstance(one, Draft))
        dropped = tuple(one for one in found if isinstance(one, Dropped))
        return Drafted(
            self.agent, self.judge, drafts, dropped, self._why_none(drafts, dropped), failed=False, spent=spent
        )

    def _why_none(self, drafts: Sequence[Draft], dropped: Sequence[Dropped]) -> str:
        if drafts:
            return ""
        if dropped:
            return "nothing new that can be used"
        return NOTHING_EXACT if is_heuristic(self.judge) else "the model proposed nothing"
