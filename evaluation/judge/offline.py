"""Answers without a model: the lexical judge `offline:lexical-1`, which leaves unscored what it cannot see, and exact checks of a draft.

Measured while this was designed: nothing small enough to embed judges persona conduct better than chance on personas it does not
know. So it answers only from what a proposition lists (`cues`) or names (`measure`), and says *unscored* to everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp
from typing import Any

from agents.kit.llm.requests import InvalidAnswer, LLMRequest
from agents.kit.text.ngrams import AMONG, comparable_ngrams, extract_ngrams, repeated_ngrams, typical_recurrence
from agents.kit.text.patterns import Undecided, find_all, one_message
from agents.kit.text.tokens import tokenize
from agents.kit.text.wording import percentage
from agents.models import Agent
from evaluation.dimensions import TAKES_RULES
from evaluation.judge.prompts import LONGEST_JUDGED
from evaluation.judge.verdicts import (
    Verdict,
    parse_answers,
    verdict_by_precondition,
    verdict_by_rule,
    verdict_of_entry,
)
from evaluation.propositions.files import LoadedFile, load_all, propositions_for
from evaluation.propositions.preconditions import Target
from evaluation.propositions.rules import Rule, check_rule, rule_while_growing
from evaluation.propositions.schema import Cues, Proposition
from evaluation.scorers.fluency import repetition_value

NEEDS_JUDGE = "needs an LLM judge: the claim lists no cues for the offline one"
NEEDS_JUDGE_FOR_FLAWS = "needs an LLM judge: hard mode takes off for every flaw, and cues list none"
NO_CUE_FOUND = "needs an LLM judge: none of the claim's cues occurs in the text"
SUPPORTED = 8  # of 9, where only cues for the claim occur
CONTRADICTED = 1
BOTH = 4
NO_REPETITION = "needs an LLM judge: no words are repeated, and n-grams cannot tell whether thoughts are"
REPETITIVE = 0.3  # share of 3-grams, as for suppression (specification 000, S-7.2)
LEAST_LINES = 10  # lines of a conversation that make voices
DISTINCT = 0.15  # distinctness at which the scale has risen by 1 - 1/e
# What its scores depend on beside the text: other figures make another judge (`evaluation.judge.identity`).
RULES = (SUPPORTED, CONTRADICTED, BOTH, REPETITIVE, LEAST_LINES, DISTINCT)


@one_message()
def score(request: LLMRequest) -> dict[str, Any]:
    """Score the request's claims; return them in the shape of a judge's reply (responder for the task ``score``).

    That is an entry per claim key, or for a single claim the entry itself. A claim that names a voice statistic, and is not hard, is
    scored by figures that were measured before, every other one by the texts.
    """
    facts = request.facts
    entries: dict[str, Any] = {}
    for key, claim in facts["claims"].items():
        if _needs_figures(claim):
            entries[key] = _score_figures(claim["measure"], facts.get("measured") or {})
        else:
            entries[key] = score_claim(claim, facts["texts"], facts.get("history"))
    if len(entries) == 1:
        return next(iter(entries.values()))
    return entries


def check(request: LLMRequest) -> dict[str, Any]:
    """Answer true or false to one claim from its cues (responder for the task ``check``).

    Raises:
        InvalidAnswer: The cues say nothing; the result is "could not be judged", not False.
    """
    entry = score_claim(request.facts["claims"]["p1"], request.facts["texts"])
    if "unscored" in entry:
        raise InvalidAnswer(entry["unscored"])
    return {**entry, "value": entry["value"] >= SUPPORTED}  # true where only cues for the claim occur


def _needs_figures(claim: Mapping[str, Any]) -> bool:
    """Return whether a claim names a statistic about more than its own text."""
    return not claim["hard"] and claim["measure"] in ("voice", "voices")


def _score_figures(measure: str, measured: Mapping[str, Any]) -> dict[str, Any]:
    if measure == "voice":
        return _score_voice(measured.get("voice"))
    return _score_voices(measured.get("voices"))


def _score_voice(figures: Mapping[str, Any] | None) -> dict[str, Any]:
    """Score how likely the agent said the later message, by how it spoke before: ``round(9 * p)``; 4 and 5 cannot tell.

    Args:
        figures: What `_measure_voice` in `evaluation.scorers.consistency` returned: ``own`` is p, else ``why`` says why there is none. None
            where nothing was measured. Unscored in both cases.
    """
    if figures is None:
        return {"unscored": "no voice was measured"}
    if "own" not in figures:
        return {"unscored": figures["why"]}
    reasoning = (
        f"Written as the agent wrote its {figures['messages']} messages before, and not as {figures['beside']} wrote "
        f"{figures['others']}: {percentage(figures['own'])} (50 % = it fits both; by runs of 2 to 4 characters and style, names masked)."
    )
    if figures["odd"]:
        reasoning += f" Unusual: {', '.join(figures['odd'])}."
    return _entry(round(9 * figures["own"]), reasoning, 0.5)


def _score_voices(figures: Mapping[str, Any] | None) -> dict[str, Any]:
    """Score how well speakers can be distinguished: ``round(9 * (1 - exp(-d / 0.15)))``, d = distinctness of vocabulary + of style.

    Each of the two counts as 0 where it is negative. Unscored for fewer than ten lines, or where nothing was measured (None).
    """
    if figures is None or figures["lines"] < LEAST_LINES:
        return {"unscored": f"voices show across at least {LEAST_LINES} lines, two or more of each of two agents"}
    distinct = max(0.0, figures["vocabulary"]) + max(0.0, figures["style"])
    reasoning = (
        f"Lines of one agent are more alike than lines of different ones by {percentage(figures['vocabulary'])} in their words; "
        f"{percentage(figures['style'])} of the variation of style lies between the {figures['speakers']} agents "
        "(0 % = no voices of their own)."
    )
    return _entry(round(9 * (1 - exp(-distinct / DISTINCT))), reasoning, 0.4)


@one_message()
def score_claim(claim: Mapping[str, Any], texts: Sequence[str], history: Sequence[str] | None = None) -> dict[str, Any]:
    """Return one claim's entry of a reply, or ``{"unscored": why}``, with ``"out_of_reach"`` where the claim gives nothing to go by.

    Args:
        claim: As a request's facts hold it: ``cues``, ``measure``, ``hard``.
        history: What the agent said before, where the text is a draft; None for what has been said already.
    """
    if claim["hard"]:
        return {"unscored": NEEDS_JUDGE_FOR_FLAWS, "out_of_reach": True}
    if claim["measure"] in ("repetition", "phrases"):
        if history is None:
            return _score_repetition(texts)
        return _score_draft_repetition("\n".join(texts), history)
    cues = claim["cues"]
    if not cues:
        return {"unscored": NEEDS_JUDGE, "out_of_reach": True}
    text = "\n".join(texts)
    try:
        supports = _find_cues(cues["supports"], text)
        contradicts = _find_cues(cues["contradicts"], text)
    except Undecided as problem:
        return {"unscored": str(problem)}
    return _score_cues(supports, contradicts)


def _find_cues(phrases: Sequence[str], text: str) -> list[str]:
    """Return the words of a text in which these cues occur, each once.

    Raises:
        Undecided: A pattern took too long, and no other cue occurs.
    """
    matches, undecided = find_all(phrases, text)
    if undecided and not matches:
        raise next(iter(undecided.values()))
    words = [" ".join(match.group().split()) or phrase for phrase, match in matches.items()]
    return list(dict.fromkeys(words))


def _score_cues(supports: Sequence[str], contradicts: Sequence[str]) -> dict[str, Any]:
    """Score a claim by the cues that occur: 8 where all speak for it, 1 where all speak against it, 4 for both, unscored for none."""
    if not supports and not contradicts:
        return {"unscored": NO_CUE_FOUND}
    value = BOTH
    if not contradicts:
        value = SUPPORTED
    elif not supports:
        value = CONTRADICTED
    reasons: list[str] = []
    if supports:
        reasons.append(f"for it: {_quoted(supports)}")
    if contradicts:
        reasons.append(f"against it: {_quoted(contradicts)}")
    return _entry(value, f"Cues found {'; '.join(reasons)}.", 0.5)


def _score_repetition(texts: Sequence[str]) -> dict[str, Any]:
    """Score how far messages repeat each other: ``round(9 * (1 - r)**2)``, r = share of the 3-grams that recur among any five of them.

    Unscored is one message alone, and r up to 0.3: there thoughts may be repeated in other words, which n-grams cannot see.
    """
    if len(texts) < 2:
        return {"unscored": f"repetition shows across at least 2 messages, the window has {len(texts)}"}
    share, _ = typical_recurrence([comparable_ngrams(text, 3) for text in texts])
    recurs = f"{percentage(share)} of the 3-grams recur among any {min(AMONG, len(texts))} of {len(texts)} messages."
    if share <= REPETITIVE:
        return {"unscored": f"{NO_REPETITION}: {recurs}"}
    phrases = _quoted([phrase for phrase, _ in repeated_ngrams(texts, 3, 5)])
    return _entry(round(repetition_value(share)), f"{recurs} Most frequent: {phrases}.", 0.6)


def _score_draft_repetition(draft: str, history: Sequence[str]) -> dict[str, Any]:
    """Score how far a draft says again what its speaker said before: ``round(9 * (1 - r)**2)``, r = share of its 3-grams said before.

    Only r above 0.3 is scored: below, thoughts may be repeated in other words, which n-grams cannot see. A draft of fewer than three words
    is unscored ("Yes." may be said twice), and so is one of an agent that said nothing before.
    """
    grams = extract_ngrams(draft, 3)
    if not history:
        return {"unscored": "repetition shows against earlier messages, and the agent said nothing before"}
    if not grams:
        return {"unscored": "repetition shows in 3-grams, and the message has fewer than 3 words"}
    earlier_grams: set[tuple[str, ...]] = set()
    for text in history:
        earlier_grams.update(extract_ngrams(text, 3))
    repeated = [" ".join(gram) for gram in grams if gram in earlier_grams]
    share = len(repeated) / len(grams)
    finding = f"{percentage(share)} of the 3-grams stand in the agent's {len(history)} earlier messages."
    if share <= REPETITIVE:
        return {"unscored": f"{NO_REPETITION}: {finding}"}
    phrases = _quoted(list(dict.fromkeys(repeated)))
    return _entry(round(repetition_value(share)), f"{finding} Said again: {phrases}.", 0.6)


def _entry(value: int, reasoning: str, confidence: float) -> dict[str, Any]:
    """Return one claim's entry of a reply."""
    return {
        "evidence": "present",
        "reasoning": reasoning,
        "justification": "lexical heuristic, not a reading of the text",
        "value": value,
        "confidence": confidence,
    }


def _quoted(phrases: Sequence[str]) -> str:
    """Quote the first five phrases."""
    return ", ".join(f"\u201c{phrase[:60]}\u201d" for phrase in phrases[:5])


ALIKE = 0.5  # share of the telling words two ideas must have in common to count as the same

_LIST_POINT = re.compile(r"^\s*(?:[-*\u2022\u30fb]|\d{1,2}[.)\u3001])\s*(?P<idea>\S.*)$")
_ANNOUNCED_IDEA = re.compile(
    r"(?:^|(?<=[.!?\n]\s)|(?<=[.!?\n]))[^\S\n]*(?:(?:my|new|another|one more|here'?s (?:an|my))\s+)?"
    r"(?:idea|proposal|suggestion|アイデア|提案|اقتراح|فكرة)\s*(?:\d+\s*)?[:\uff1a]\s*(?P<idea>[^\n.!?。！？]+)",
    re.IGNORECASE,
)


def list_ideas(request: LLMRequest) -> dict[str, Any]:
    """List the points of lists, and what is announced as ``Idea: …`` (responder for the task ``ideas``).

    Returns:
        In the shape of a judge's reply; ``entries`` holds the number of the line, from 1. What is marked in both ways is listed twice.
    """
    ideas: list[dict[str, Any]] = []
    for number, text in enumerate(request.facts["lines"], 1):
        for idea in _marked_ideas(text):
            ideas.append({"idea": idea, "description": "", "entries": [number]})
    return {"ideas": ideas}


def _marked_ideas(text: str) -> Iterator[str]:
    """Yield the ideas that a text marks as such."""
    for line in text.splitlines():
        point = _LIST_POINT.match(line)
        if point:
            yield point["idea"].strip().rstrip(".!;,。")
    for announced in _ANNOUNCED_IDEA.finditer(text):
        yield announced["idea"].strip()


def collapse(request: LLMRequest) -> dict[str, Any]:
    """Find ideas that share at least half of their telling words with an earlier one (responder for the task ``collapse``).

    The first ``known`` of them are known to differ and are only compared with. Of several earlier ones the first is named. Numbers in the
    answer begin at 1.
    """
    words = [_telling_words(idea) for idea in request.facts["ideas"]]
    same: list[dict[str, int]] = []
    for later in range(request.facts["known"], len(words)):
        for earlier in range(later):
            if _are_alike(words[earlier], words[later]):
                same.append({"idea": later + 1, "same_as": earlier + 1})
                break
    return {"same": same}


def _telling_words(idea: str) -> frozenset[str]:
    """Return the first six letters of its long words, as a stem; single characters of scripts without spaces as they are."""
    return frozenset(word[:6] for word in tokenize(idea) if len(word) > 3 or not word.isascii())


def _are_alike(words: frozenset[str], other_words: frozenset[str]) -> bool:
    if not words or not other_words:
        return False
    return len(words & other_words) / len(words | other_words) >= ALIKE


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
    growing: bool = False,
) -> list[tuple[Proposition, Verdict]]:
    """Check a draft by the agent's rules, and by its cues where `cues` is set.

    Args:
        agent_slug: Whose propositions; those of every agent count, too.
        text: The draft. Rules look at all of it, but regular expressions at its first 20,000 characters; cues at as many, which is
            what a judge reads of a message.
        channel_kind: Where it will be said, for preconditions.
        is_reply: Whether it answers a message in a thread, for preconditions.
        cues: Whether to look for the cues of judged claims as well, as the offline judge does.
        files, seeded: As for `propositions_for`.
        growing: Whether the draft is still being written: rules that only the whole text can meet are passed over.

    Returns:
        Every proposition that could be looked at, in order, with its verdict: scored, trivial where its precondition is false,
        or unscored where no cue occurs or a pattern cannot say. Judged claims without cues, or at action level, are not among them, nor
        is a rule that need not hold in every message (`of_ten`).

    Raises:
        PropositionError: A file cannot be used.
    """
    target = Target(text=text, channel_kind=channel_kind, is_reply=is_reply)
    checked: list[tuple[Proposition, Verdict]] = []
    for level, proposition in _propositions_about_messages(agent_slug, files=files, seeded=seeded):
        if proposition.of_ten is not None:  # one message cannot break it
            continue
        rule = proposition.rule
        if rule is not None and growing:
            rule = rule_while_growing(rule, inverted=proposition.inverted)
        check: Callable[[], Verdict]
        if rule is not None:
            check = partial(verdict_by_rule, rule, text, inverted=proposition.inverted)
        elif cues and level == "evaluation" and proposition.cues is not None:
            check = partial(_by_cues, proposition, proposition.cues, text[:LONGEST_JUDGED])
        else:
            continue
        verdict = verdict_by_precondition(proposition, target, variables=variables) or check()
        checked.append((proposition, replace(verdict, recommendations=proposition.recommendations)))
    return checked


def _propositions_about_messages(
    agent_slug: str, *, files: Sequence[LoadedFile] | None, seeded: bool
) -> Iterator[tuple[str, Proposition]]:
    """Yield the propositions that may have a rule, each with its level; rules and judged claims alike.

    Raises:
        PropositionError: A file cannot be used.
    """
    for dimension in TAKES_RULES:
        for level in LEVELS:
            propositions = propositions_for(
                agent_slug=agent_slug, dimension=dimension, level=level, files=files, seeded=seeded
            )
            for proposition in propositions:
                yield level, proposition


def rules_of(agent: Agent) -> list[Callable[[str], bool]]:
    """Return the rules of an agent's propositions about one message, as functions that are true where a text keeps the rule.

    Whoever polishes a text must keep them (`swarm_guards`).

    A pattern that cannot say, and a precondition that the text alone does not meet, break nothing.

    Raises:
        PropositionError: A file cannot be used.
    """
    rules: list[Callable[[str], bool]] = []
    for _, proposition in _propositions_about_messages(agent.slug, files=load_all(), seeded=agent.seeded):
        if proposition.rule and proposition.of_ten is None:  # what may be broken now and then is nothing to keep
            rules.append(partial(_keeps_rule, proposition, proposition.rule))
    return rules


def _keeps_rule(proposition: Proposition, rule: Rule, text: str) -> bool:
    """Return whether a text keeps a rule. True also where its precondition does not hold, or a pattern cannot say.

    A precondition is judged by the text alone: it is no reply, and its channel is not known. An inverted rule is kept where it is broken.
    """
    if verdict_by_precondition(proposition, Target(text=text)) is not None:
        return True
    try:
        with one_message():  # its patterns share one limit of time
            is_broken = bool(check_rule(rule, text))
    except Undecided:
        return True
    return is_broken if proposition.inverted else not is_broken


def _by_cues(proposition: Proposition, cues: Cues, text: str) -> Verdict:
    entry = score_claim({"cues": cues.model_dump(), "measure": None, "hard": proposition.hard}, [text])
    return verdict_of_entry(parse_answers(entry, {"p1": proposition})["p1"], proposition)
