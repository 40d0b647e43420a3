"""An agent's own adherence propositions on one draft, without a model: its rules, and offline also its cues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agents.text.fences import MAX_EVENT_CHARACTERS
from agents.text.patterns import one_message
from evaluation.offline import score_claim
from evaluation.preconditions import PRECONDITIONS, Target
from evaluation.proposition_files import LoadedFile, propositions_for
from evaluation.proposition_schema import Cues
from evaluation.propositions import Proposition
from evaluation.verdicts import Verdict, judged, parse_answers, trivial, verdict_by_rule

LEVELS = ("evaluation", "action")


@one_message()
def check_draft(
    *,
    agent_slug: str,
    text: str,
    channel_kind: str,
    is_reply: bool,
    cues: bool,
    variables: Mapping[str, str] | None = None,
    files: Sequence[LoadedFile] | None = None,
    seeded: bool = False,
) -> list[tuple[Proposition, Verdict]]:
    """What the agent's rules say of a draft, and its cues where `cues` is set.

    Args:
        agent_slug: Whose propositions; those of every agent count, too.
        text: The draft. Rules look at all of it, but regular expressions at its first 20,000 characters; cues at its first 4,000,
            which is what a judge reads of a message.
        channel_kind: Where it will be said, for preconditions.
        is_reply: Whether it answers a message in a thread, for preconditions.
        cues: Whether to look for the cues of judged claims as well, as the offline judge does.
        variables: Values of the claims' variables, for preconditions.
        files, seeded: As for `propositions_for`.

    Returns:
        Every proposition that could be looked at, in order, with its verdict: scored, trivial where its precondition is false,
        or unscored where no cue occurs or a pattern cannot say. Judged claims without cues are not among them.

    Raises:
        PropositionError: A file cannot be used.
    """
    target = Target(text=text, channel_kind=channel_kind, is_reply=is_reply)
    found: list[tuple[Proposition, Verdict]] = []
    for level in LEVELS:
        for proposition in propositions_for(
            agent_slug=agent_slug, dimension="adherence", level=level, files=files, seeded=seeded
        ):
            name = proposition.precondition
            if name and not PRECONDITIONS[name](target, {}, variables or {}):
                verdict = trivial(f"its precondition {name} does not hold")
            elif proposition.rule is not None:
                verdict = verdict_by_rule(proposition.rule, text, inverted=proposition.inverted)
            elif cues and level == "evaluation" and proposition.cues is not None:
                verdict = _by_cues(proposition, proposition.cues, text[:MAX_EVENT_CHARACTERS])
            else:
                continue
            found.append((proposition, replace(verdict, recommendations=proposition.recommendations)))
    return found


def _by_cues(proposition: Proposition, cues: Cues, text: str) -> Verdict:
    entry = score_claim({"cues": cues.model_dump(), "measure": None, "hard": proposition.hard}, [text])
    return judged(parse_answers(entry, {"p1": proposition})["p1"], proposition)
