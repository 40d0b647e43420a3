"""A claimed run while it is being taken: the claim is kept, what happens is recorded together with what it brings about."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import sentry_sdk
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from agents import llm
from agents.llm.extraction import storable
from agents.models import Message, Run, RunMessage, RunStep
from agents.turn import exchange as rows
from agents.turn.actions import Performed, calls_models, perform, send_draft
from agents.turn.exchange import Exchange
from agents.turn.prompt import Prompt
from agents.turn.values import Draft, Turn

Role = RunMessage.Role
MARGIN = 60  # seconds of a lease beyond the deadline of one model call


class ClaimLost(Exception):
    """Another process has the run now, or it was deleted: nothing more may be done."""


def lease() -> timedelta:
    """How long a claim is believed: one model call's deadline and a margin."""
    return timedelta(seconds=settings.TURN_STEP_DEADLINE + MARGIN)


@dataclass(slots=True)
class Session:
    """The run, whose it is, the turn as the stages see it, and the exchange so far.

    `earlier` is the trace that earlier claims stored.
    """

    run: Run
    owner: str
    turn: Turn
    exchange: Exchange
    earlier: list[Any] = field(default_factory=list)

    @property
    def trace(self) -> list[Any]:
        """Everything that stages did in this turn, also before it was taken up again."""
        return storable([*self.earlier, *(entry.as_json() for entry in self.turn.trace)])  # type: ignore[no-any-return]

    def keep(self) -> bool:
        """Heartbeat before each step, which also stores the trace; whether the turn may go on.

        Returns:
            False when somebody asked for it to be cancelled.

        Raises:
            ClaimLost: The run is not ours any more.
        """
        mine = Run.objects.filter(pk=self.run.pk, status=Run.Status.RUNNING, lease_owner=self.owner)
        if not mine.update(lease_expires_at=timezone.now() + lease(), trace=self.trace):
            raise ClaimLost(f"run {self.run.pk} is not held by {self.owner} any more")
        return not mine.values_list("cancel_requested", flat=True).get()

    def begin(self, prompt: Prompt, draft: Draft | None) -> None:
        """Record what the agent is shown, and what a stage answers in place of the model."""
        with transaction.atomic():
            self.keep()
            self._add(Role.SYSTEM, rows.system_row(prompt, self.turn))
            self._add(Role.USER, rows.user_row(prompt))
            if draft is not None:
                self._add(Role.ASSISTANT, rows.draft_row(draft))
        self.exchange.system, self.exchange.nonce = prompt.system, prompt.nonce
        self.exchange.turns.append(prompt.user)
        self.exchange.draft = draft

    def answered(self, reply: llm.Reply, begun: float) -> None:
        """Record a model call, and its reply when it can be used."""
        detail = {
            "status": str(reply.status),
            "error": reply.error,
            "model": reply.served_model or reply.model,
            "call": reply.call_id,
            "tools": [call.name for call in reply.tool_calls],
        }
        with transaction.atomic():
            self.keep()
            step = self._step("model_call", detail, begun)
            if reply.ok:
                self._add(Role.ASSISTANT, rows.reply_row(reply), step=step)
        self.exchange.model_calls += 1
        if reply.ok:
            rows.add_reply(self.exchange, reply.text, reply.tool_calls)

    def act(self) -> None:
        """Carry out the next pending tool call and record its answer; what only touches the database, in the same transaction."""
        draft, begun = self.exchange.draft, time.perf_counter()
        if draft is not None:
            self._record("draft", "send_message", begun, send_draft(draft, turn=self.turn))
            return
        call = self.exchange.pending[0]
        if self.exchange.ended:
            self._record(call.id, call.name, begun, Performed("Not done: your turn is over.", is_error=True))
        elif calls_models(call):
            self._record(call.id, call.name, begun, self._perform(call))
        else:
            self._record(call.id, call.name, begun)

    def _perform(self, call: llm.ToolCall) -> Performed:
        with sentry_sdk.start_span(op="agents.turn.tool", name=call.name[:64]) as span:
            done = perform(call, turn=self.turn, nonce=self.exchange.nonce)
            span.set_data("is_error", done.is_error)
        return done

    def _record(self, call_id: str, tool: str, begun: float, done: Performed | None = None) -> None:
        """Record what became of a tool call; one that is not done yet is carried out here, inside the transaction."""
        with transaction.atomic():
            self.keep()
            done = done or self._perform(self.exchange.pending[0])
            content = storable(rows.result_row(call_id, tool, done))
            step = self._step("tool_call", {"tool": tool, "is_error": done.is_error, **done.detail}, begun)
            self._add(Role.TOOL, content, step=step, tool_name=tool[:64], message=done.message)
        rows.add_result(self.exchange, content)

    def _step(self, kind: str, detail: Mapping[str, Any], begun: float) -> RunStep:
        self.exchange.step += 1
        took = round((time.perf_counter() - begun) * 1000)
        return RunStep.objects.create(
            run=self.run, number=self.exchange.step, kind=kind, detail=storable(dict(detail)), duration_ms=took
        )

    def _add(
        self,
        role: str,
        content: Mapping[str, Any],
        *,
        step: RunStep | None = None,
        tool_name: str = "",
        message: Message | None = None,
    ) -> None:
        self.exchange.number += 1
        RunMessage.objects.create(
            run=self.run,
            number=self.exchange.number,
            role=role,
            content=storable(dict(content)),
            step=step,
            tool_name=tool_name,
            message=message,
        )
