"""How well a judge tells requests from other messages: the gate tier on labelled messages, with intervals (specification 002)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings

from agents.llm import LLMRequest, Reply, complete_many, estimate_tokens, ledger
from agents.llm.endpoints import model_of, provider_of
from agents.llm.ledger import Totals, totals
from correction.behavior.own_words import own_words
from correction.behavior.tiers import Subject, found_without_model, tier_request
from evaluation.judge.questions import JudgeHealth

NAME = "Assistant"
OUTPUT_TOKENS = 60  # of a gate's answer; an assumption
TEXT_KEYS, LABEL_KEYS = ("text", "message"), ("request", "has_request")


class CaseFileError(ValueError):
    """What is wrong with a file of cases, with line numbers."""


@dataclass(frozen=True, slots=True)
class Case:
    """A labelled message."""

    line: int
    text: str
    request: bool
    kind: str = ""
    language: str = ""


@dataclass(slots=True)
class Judged:
    """A case and what the gate said.

    Attributes:
        found: Whether it found a request; None where it could not be judged, and `why` says why.
        confidence: Of the answer.
    """

    case: Case
    found: bool | None = None
    confidence: str = ""
    why: str = "not asked"


@dataclass(frozen=True, slots=True)
class Bench:
    """Cases as they were judged, by whom, at what cost."""

    judge: str
    judged: tuple[Judged, ...]
    spent: Totals = field(compare=False)
    stopped: str = ""

    @property
    def scored(self) -> list[Judged]:
        return [one for one in self.judged if one.found is not None]


def read_cases(path: Path) -> list[Case]:
    """The cases of a JSONL file: ``text`` (or ``message``), ``request`` (or ``has_request``), and where known ``kind`` and ``language``.

    Raises:
        CaseFileError: The file cannot be read or lines are wrong; names each.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseFileError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    cases: list[Case] = []
    wrong: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                cases.append(_case(number, line))
            except ValueError as error:
                wrong.append(f"line {number}: {error}")
    if wrong:
        more = f"\n  and {len(wrong) - 20} more" if len(wrong) > 20 else ""
        raise CaseFileError(f"{path}:\n  " + "\n  ".join(wrong[:20]) + more)
    if not cases:
        raise CaseFileError(f"{path}: there is no case in it")
    return cases


def _case(number: int, line: str) -> Case:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"expected an object, got {type(row).__name__}")
    text, label = _only(row, TEXT_KEYS, str), _only(row, LABEL_KEYS, bool)
    kind, language = (row.get(name) if isinstance(row.get(name), str) else "" for name in ("kind", "language"))
    return Case(number, text, label, kind or "", language or "")


def _only(row: dict[str, Any], keys: Sequence[str], kind: type) -> Any:
    """The value of the one key that is there."""
    there = [key for key in keys if key in row]
    names = " or ".join(keys)
    if len(there) != 1:
        raise ValueError(f"{'both' if there else 'neither'} of {names}; exactly one is needed")
    value = row[there[0]]
    if not isinstance(value, kind):
        allowed = "true or false" if kind is bool else "a text"
        raise ValueError(f"{there[0]} is {json.dumps(value)[:40]}; allowed: {allowed}")
    return value


@dataclass(frozen=True, slots=True)
class Estimate:
    """Before asking: calls, tokens (characters ÷ 4, an assumption for the answers), and US dollars; None when unpriced."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None


def estimate(cases: Sequence[Case], *, model: str = "") -> Estimate | None:
    """What judging these would need; None where the judge needs no network."""
    judge = model or model_of("judge")
    if provider_of(judge) != "anthropic":
        return None
    requests = [request for case in cases if (request := _request(case, model, "estimate")) is not None]
    tokens = sum(map(estimate_tokens, requests))
    output = OUTPUT_TOKENS * len(requests)
    return Estimate(len(requests), tokens, output, ledger.estimate_cost(judge, tokens, output))


def bench(cases: Sequence[Case], *, model: str = "", done: Callable[[int], None] = lambda count: None) -> Bench:
    """Judge the cases, many at once. Every call is in the ledger; nothing else is stored.

    A case whose call failed is unscored: it is in no figure and counted apart.

    Args:
        cases: What to judge.
        model: Overrides the configured judge.
        done: Called with how many cases were settled just now.
    """
    work_id = f"behavior-bench:{uuid.uuid4().hex[:12]}"
    judged = [Judged(case) for case in cases]
    asked: list[Judged] = []
    health = JudgeHealth()
    for index, reply in complete_many(
        _requests(judged, asked, model, work_id, done), deadline=settings.LLM_EVALUATION_DEADLINE
    ):
        _take(asked[index], reply)
        done(1)
        health.note(failed=not reply.ok, why=asked[index].why)
        if health.down:
            break
    return Bench(model or model_of("judge"), tuple(judged), totals(work_id=work_id), health.down)


def _requests(
    judged: Iterable[Judged], asked: list[Judged], model: str, work_id: str, done: Callable[[int], None]
) -> Iterator[LLMRequest]:
    for one in judged:
        request = _request(one.case, model, work_id)
        if request is None:
            gate = found_without_model(own_words(one.case.text))["gate"]
            one.found, one.confidence, one.why = gate["has_request"], gate["confidence"], ""
            done(1)
        else:
            asked.append(one)
            yield request


def _request(case: Case, model: str, work_id: str) -> LLMRequest | None:
    """The gate's question; None where no model is asked."""
    words = own_words(case.text)
    if found_without_model(words):
        return None
    subject = Subject(name=NAME, persona="")
    return tier_request("gate", words=words, subject=subject, found={}, work_id=work_id, model=model)


def _take(one: Judged, reply: Reply) -> None:
    if reply.ok:
        one.found, one.confidence, one.why = reply.value["has_request"], reply.value["confidence"], ""
    else:
        one.why = f"{reply.status}: {reply.error}"
