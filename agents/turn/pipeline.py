"""The stages a turn passes, as `TURN_PIPELINE` lists them (DESIGN §1). Fail-open: one that raises is noted and passed over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import sentry_sdk
from django.conf import settings
from django.db import transaction
from django.utils.module_loading import import_string

from agents.models import Agent, Message
from agents.turn.overrides import stages_of
from agents.turn.values import Accept, Draft, Phase, Revise, TraceEntry, Turn

logger = logging.getLogger(__name__)


class StageFailed(Exception):
    """A stage marked `required` raised: the turn cannot go on."""


class Pipeline:
    """The stages in their order. Holds no state of a turn, so that threads and turns can share it."""

    def __init__(self, stages: Sequence[Any]) -> None:
        self.stages = tuple(stages)

    def received(self, *, message: Message, agent: Agent) -> list[TraceEntry]:
        """A human message arrived for `agent`."""
        trace: list[TraceEntry] = []
        for stage, method in self._having("received"):
            with _noted(stage, "received", trace, []):
                method(message, agent)
        return trace

    def prepare(self, turn: Turn) -> Draft | None:
        """Let the stages add to the prompt; a draft when one of them answers at once (the later ones are not asked)."""
        for stage, method in self._having("prepare"):
            with _noted(stage, "prepare", turn.trace, turn.running):
                draft = method(turn)
                if draft is not None:
                    answer: Draft = _typed(draft, Draft)
                    return answer
        return None

    def review(self, turn: Turn, draft: Draft) -> Accept | Revise:
        """Pass a draft through the stages; the first that sends it back decides. No transaction may be open here."""
        turn.original, accepted = draft, Accept(draft)
        for stage, method in self._having("review"):
            with _noted(stage, "review", turn.trace, turn.running):
                answer = _typed(method(turn, accepted.draft), Accept, Revise)
                if isinstance(answer, Revise):
                    return answer
                accepted = Accept(answer.draft, answer.outcome or accepted.outcome)
        return accepted

    def committed(self, turn: Turn, message: Message) -> None:
        """The message is saved; runs inside the transaction that saved it, each stage in a savepoint of its own."""
        reviewed = {
            entry.stage: entry.status for entry in turn.trace if entry.phase == "review"
        }  # the latest review counts
        for stage, method in self._having("committed"):
            if reviewed.get(name_of(stage)) != "skipped":
                with _noted(stage, "committed", turn.trace, turn.running), transaction.atomic():
                    method(turn, message)

    def finish(self, turn: Turn) -> None:
        """The turn ends, whatever its reason."""
        for stage, method in self._having("finish"):
            with _noted(stage, "finish", turn.trace, turn.running):
                method(turn)

    def _having(self, method: str) -> Iterator[tuple[Any, Callable[..., Any]]]:
        for stage in self.stages:
            if (function := getattr(stage, method, None)) is not None:
                yield stage, function


def pipeline(overrides: Mapping[str, Any] | None = None) -> Pipeline:
    """The pipeline that `TURN_PIPELINE` lists now, built once per list; of it what a turn's overrides leave (``stages``).

    Raises:
        ImportError: A path leads nowhere (the system check ``agents.E006`` says so at start-up).
    """
    whole = _built(tuple(settings.TURN_PIPELINE))
    chosen = stages_of(overrides) if overrides else None
    if chosen is None:
        return whole
    return Pipeline([s for s in whole.stages if name_of(s) in chosen or getattr(s, "required", False)])


@lru_cache(maxsize=16)
def _built(paths: tuple[str, ...]) -> Pipeline:
    return Pipeline([import_string(path)() for path in paths])


def name_of(stage: Any) -> str:
    return str(getattr(stage, "name", "") or type(stage).__name__)


def _typed(answer: Any, *allowed: type) -> Any:
    if not isinstance(answer, allowed):
        raise TypeError(f"expected {' or '.join(a.__name__ for a in allowed)}, got {type(answer).__name__}")
    return answer


@contextmanager
def _noted(stage: Any, phase: Phase, trace: list[TraceEntry], running: list[TraceEntry]) -> Iterator[None]:
    """Note on the trace what the stage does; an exception ends the stage, not the turn, unless the stage is required."""
    entry = TraceEntry(name_of(stage), phase)
    trace.append(entry)
    running.append(entry)
    begun = time.perf_counter()
    try:
        yield
    except Exception as error:
        entry.status, entry.why = "failed", f"{type(error).__name__}: {error}"[:300]
        logger.exception("stage %s failed in %s", entry.stage, phase)
        sentry_sdk.capture_exception(error)
        if getattr(stage, "required", False):
            raise StageFailed(f"{entry.stage}: {entry.why}") from error
    finally:
        running.pop()
        entry.ms += (time.perf_counter() - begun) * 1000
