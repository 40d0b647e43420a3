"""Ask a judge how far the answers of a round agree: one call a round. Without a model they are compared by stances and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from pydantic import BaseModel, ConfigDict

from agents.debates.answers import Answer
from agents.debates.measures import Cluster, Consensus, Share, offline_consensus
from agents.debates.models import Debate
from agents.kit.llm import Block, InvalidAnswer, Label, LLMRequest, Turn, complete
from agents.kit.llm.providers import is_heuristic
from agents.kit.llm.requests import object_schema
from agents.kit.text.fences import fence, indented, new_nonce, render_prompt, safe_and_cut

MAX_TOKENS = 2_000
POSITION_CHARACTERS, REASONING_CHARACTERS = 2_000, 4_000  # of an answer that the judge is shown
MOST_ENTRIES = 20  # of each list that is stored
ENTRY_CHARACTERS = 1_000


class _Judgement(BaseModel):
    """The judge's answer. Only the agreement has to be there; the rest helps people to read it."""

    model_config = ConfigDict(extra="ignore", strict=True)

    agreement: Share | None
    clusters: list[Cluster] = []
    common_ground: list[str] = []
    disagreements: list[str] = []
    summary: str = ""


def judge_consensus(debate: Debate, round: int, answers: Sequence[Answer]) -> Consensus:
    """Ask the judge how far the answers of one round agree. No transaction may be open.

    Args:
        round: Its number, for the ledger.
        answers: Of the seats that answered; fewer than two are not compared, and no model is asked.

    Returns:
        The agreement, with lists and texts cut to what is stored. None, with the reason, where the call failed, or the judge could not
        compare the answers. `heuristic` where no model is configured and an offline judge compared them.
    """
    if len(answers) < 2:
        return offline_consensus(answers)
    reply = complete(_consensus_request(debate, round, answers), deadline=settings.LLM_EVALUATION_DEADLINE)
    judge = reply.served_model or reply.model
    if not reply.ok:
        return Consensus(agreement=None, judge=judge, reason=f"{reply.status}: {reply.error}"[:ENTRY_CHARACTERS])
    judgement: _Judgement = reply.value
    return Consensus(
        agreement=judgement.agreement,
        clusters=judgement.clusters[:MOST_ENTRIES],
        common_ground=_cut_entries(judgement.common_ground),
        disagreements=_cut_entries(judgement.disagreements),
        summary=judgement.summary[:ENTRY_CHARACTERS],
        judge=judge,
        heuristic=is_heuristic(reply.model),
        reason="" if judgement.agreement is not None else "the judge could not compare the answers",
    )


def _consensus_request(debate: Debate, round: int, answers: Sequence[Answer]) -> LLMRequest:
    """Return the question how far the answers of a round agree."""
    nonce = new_nonce()
    text = render_prompt(
        "debates/consensus_answers",
        question=fence("QUESTION", safe_and_cut(debate.topic), nonce),
        answers=fence("ANSWERS", "\n\n".join(map(_answer_lines, answers)), nonce),
        seats=", ".join(str(answer.seat) for answer in answers),
    )
    return LLMRequest(
        role="judge",
        task="debate_consensus",
        system=(Block(render_prompt("debates/consensus"), cache=True),),
        turns=(Turn("user", (Block(text),)),),
        schema=_SCHEMA,
        parse=lambda data: _read_judgement(data, {answer.seat for answer in answers}),
        example={
            "agreement": 0.6,
            "clusters": [
                {"position": "The bridge is worth its price.", "seats": [1, 3]},
                {"position": "A ferry does the same for less.", "seats": [2]},
            ],
            "common_ground": ["The town needs a second way across the river."],
            "disagreements": ["Whether the bridge pays for itself within ten years."],
            "summary": "They agree on the need and differ on the price.",
        },
        reask=True,
        max_tokens=MAX_TOKENS,
        retries=settings.LLM_EVALUATION_RETRIES,
        nonce=nonce,
        facts={"answers": [answer.model_dump(mode="json") for answer in answers]},
        label=Label(purpose="debate", mechanism="consensus", work_id=f"debate:{debate.pk}", item=f"round {round}"),
    )


def _answer_lines(answer: Answer) -> str:
    """Return an answer as lines, in which its texts, cut where they are long, cannot pass for another entry."""
    lines = [f"Seat {answer.seat}"]
    if answer.stance is not None:
        lines.append(f"stance: {answer.stance}")
    if answer.confidence is not None:
        lines.append(f"confidence: {answer.confidence:g}")
    lines.append("position: " + indented(answer.position, POSITION_CHARACTERS))
    if answer.reasoning:
        lines.append("reasoning: " + indented(answer.reasoning, REASONING_CHARACTERS))
    return "\n".join(lines)


def _read_judgement(data: Any, seats: set[int]) -> _Judgement:
    """Return the judge's answer.

    Args:
        seats: Numbers of the seats that answered.

    Raises:
        ValidationError: It has not the form asked for.
        InvalidAnswer: A cluster names a seat that did not answer, or two clusters the same seat.
    """
    judgement = _Judgement.model_validate(data)
    clustered: list[int] = []
    for cluster in judgement.clusters:
        clustered += cluster.seats
    unknown = sorted(set(clustered) - seats)
    if unknown:
        raise InvalidAnswer(f"clusters: there is no seat {unknown[0]}; allowed: {', '.join(map(str, sorted(seats)))}")
    if len(clustered) > len(set(clustered)):
        raise InvalidAnswer("clusters: a seat stands in two of them; allowed: each seat in one")
    return judgement


def _cut_entries(texts: Sequence[str]) -> list[str]:
    """Return the entries of a list that are stored, each cut to its longest length."""
    return [text[:ENTRY_CHARACTERS] for text in texts[:MOST_ENTRIES]]


def offline(request: LLMRequest) -> Mapping[str, Any]:
    """Compare by stances and words (responder for the task ``debate_consensus``)."""
    return offline_consensus([Answer(**answer) for answer in request.facts["answers"]]).model_dump(mode="json")


_TEXT, _TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
_SCHEMA = object_schema(
    {
        "agreement": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "clusters": {
            "type": "array",
            "items": object_schema({"position": _TEXT, "seats": {"type": "array", "items": {"type": "integer"}}}),
        },
        "common_ground": _TEXTS,
        "disagreements": _TEXTS,
        "summary": _TEXT,
    }
)
