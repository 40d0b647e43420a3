"""Write a reply again from the sentence that failed: the agent's model goes on after the words that are out, with the gate's feedback."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core import signing
from django.db import IntegrityError

from agents.kit.llm import Block, Label, LLMRequest, Status, Turn, complete
from agents.kit.llm.endpoints import route_of
from agents.kit.llm.requests import InvalidAnswer
from agents.kit.text.fences import render_prompt
from agents.kit.text.storable import storable
from agents.kit.text.tokens import sentence_ends
from agents.turn.scripted import next_line
from correction.gate.actions import persona_of
from correction.gate.quality_check import newest_version
from correction.gate.results import GateResult
from correction.gate.sessions import best_attempt, write_attempt
from correction.gate.stage import feedback
from correction.litellm.checking import ASSISTANT, TOOL, Checker, load_session
from correction.litellm.contract import Parameters, Round
from correction.litellm.models import GatedReply
from correction.litellm.replies import ReplySoFar, StoredResult, whole_ends
from correction.models import GateSession, Outcome

MARK_HEADER = "x-litellm-plumbline-rewrite"  # LiteLLM passes on values of headers that begin with x-litellm-
MARK_SALT = "correction.litellm.rewriting"
MARK_SECONDS = 600  # for which a mark holds: longer than any call
WRITING_SECONDS = 30.0  # for one attempt of the model that writes again
MOST_TOKENS = 1_500  # that it may write: about what a model writes in WRITING_SECONDS; it is asked for less
LEAST_WRITING_SECONDS = 1.0  # with less left it is not asked
TOOL_ANSWERED = "(A tool answered:)"
BEGINNING = "(The conversation begins with your message.)"  # a conversation with a model begins with another's message


def new_mark(parameters: Parameters) -> str:
    """Return the value of the header by which a call for a rewriting is known, so that it is not guarded again."""
    route = route_of("actor", parameters.rewrite_model)
    model = route.provider.bare_name(route.model)  # as LiteLLM knows it
    return signing.dumps({"agent": parameters.agent, "model": model}, salt=MARK_SALT)


def is_marked(gateway_round: Round, *, user_id: int) -> bool:
    """Return whether a round is of a call of ours, for this agent and model; a forged or old mark is none.

    Rounds with a reply name the model as its server does. They are believed where the round before the call was, which stores nothing.
    """
    value = gateway_round.header(MARK_HEADER)
    if not value:
        return False
    try:
        marked = signing.loads(value, salt=MARK_SALT, max_age=MARK_SECONDS)
    except signing.BadSignature:
        return False
    if marked["agent"] != gateway_round.parameters.agent:
        return False
    if gateway_round.input_type == "request":
        return bool(marked["model"] == gateway_round.model)
    return not GatedReply.objects.filter(user=user_id, call_id=gateway_round.litellm_call_id).exists()


class SessionTaken(Exception):
    """Another round of the same call began the reply's gate session."""


@dataclass
class Rewriting:
    """The attempts at the rest of one reply.

    Attributes:
        begun: The words that passed and stay; each attempt goes on behind them. Grows by what passes of an attempt.
        space: The white space that the model wrote behind them.
        text: The latest attempt, from the beginning of the reply; at first the model's own.
        result: Its verdict: it failed.
    """

    reply: ReplySoFar
    checker: Checker
    begun: str
    space: str
    text: str
    result: GateResult
    session: GateSession = field(init=False)
    persona_version: int | None = field(init=False)

    def __post_init__(self) -> None:
        speaker = self.checker.speaker
        self.session = load_session(self.reply.session, agent=speaker.agent, speaker=self.checker.context.speaker)
        self.persona_version = newest_version(speaker.agent)

    def run(self) -> None:
        """Have the rest of the reply written until it passes or no retry is left, and note in the reply what is said."""
        while True:
            left = self.checker.speaker.config["max_correction_attempts"] - self.session.next_number + 1
            feedback_text = self._send_back(left)
            continuation = self._ask(feedback_text) if left > 0 else None
            if continuation is None:
                self._force_through()
                return
            if not continuation:
                # It says no more, as the feedback allows: something else is said than what was sent back.
                self.reply.outcome = Outcome.CORRECTED
                self.reply.say(self.begun)
                return
            self.text = self.begun + self.space + continuation
            if self._passes():
                self.reply.say(self.text)
                return

    def _send_back(self, left: int) -> str:
        """Store the failed attempt; return the feedback on it, which is empty where no retry is left.

        Raises:
            SessionTaken: Another round of the call began the session meanwhile.
        """
        number = self.session.next_number
        log = self.result.log(
            session=self.session,
            attempt=number,
            persona_version_id=self.persona_version,
            original_text=self.text,
            judged_text=self.text,
        )
        if left > 0:
            log.feedback = feedback(draft=self.text, result=self.result, attempt=number, left=left, external=True)
        try:
            write_attempt(log)
        except IntegrityError:
            raise SessionTaken from None
        self.session = log.session  # a new one where another process ended it meanwhile
        self.reply.session = self.session.uuid
        self.session.attempts = (*self.session.attempts, log)
        return log.feedback

    def _ask(self, feedback_text: str) -> str | None:
        """Return how the model goes on behind what stays, without white space around it; empty where it says no more.

        None where the call failed or no time is left for it, and where it says nothing although nothing stands there yet.
        """
        seconds_for_check = float(self.checker.speaker.config["gate_deadline_seconds"])
        deadline = min(WRITING_SECONDS, self.checker.seconds_left - seconds_for_check)
        if deadline < LEAST_WRITING_SECONDS:
            return None
        reply = complete(self._request(feedback_text), deadline=deadline)
        says_no_more = reply.status is Status.MALFORMED and not reply.text.strip()
        if says_no_more and self.begun.strip():
            return ""
        text: str = storable(reply.text)
        if reply.status is Status.TRUNCATED:  # it ends with its last whole sentence
            ends = sentence_ends(text, growing=True)
            text = text[: ends[-1]] if ends else ""
        elif not reply.ok:
            return None
        continuation = text.strip()
        if not continuation:
            return None
        if self.begun.strip() and continuation.startswith(self.begun.strip()):  # it repeated what it was to continue
            continuation = continuation[len(self.begun.strip()) :].strip()
        return continuation

    def _request(self, feedback_text: str) -> LLMRequest:
        """Return the call: the conversation as the model had it, the words that stay, and what is wrong with those that followed."""
        speaker = self.checker.speaker
        context = self.checker.context
        system = context.system
        if not system and speaker.agent is not None:
            system = persona_of(speaker.agent, None)
        turns: list[Turn] = []
        for message in context.messages:
            text = f"{TOOL_ANSWERED}\n{message.text}" if message.role == TOOL else message.text
            _add_turn(turns, message.role == ASSISTANT, text)
        if self.begun.strip():
            _add_turn(turns, True, self.begun)
        note = render_prompt("litellm/continue", begun=bool(self.begun.strip()), feedback=feedback_text)
        _add_turn(turns, False, note)
        return LLMRequest(
            role="actor",
            task="continue_reply",
            system=(Block(system),) if system else (),
            turns=tuple(turns),
            model=speaker.parameters.rewrite_model,
            max_tokens=MOST_TOKENS,
            gate=True,  # a person waits for it
            headers={MARK_HEADER: new_mark(speaker.parameters)},
            facts={
                "agent": speaker.agent.slug if speaker.agent is not None else "",
                "sample_lines": list(speaker.agent.sample_lines) if speaker.agent is not None else [],
                "said": [message.text for message in context.messages if message.role == ASSISTANT],
                "rejected": [self.text[len(self.begun) :].strip()],
            },
            label=Label(
                purpose="gate",
                mechanism="gate",
                agent_id=speaker.agent.pk if speaker.agent is not None else None,
                work_id=self.session.work_id,
            ),
        )

    def _passes(self) -> bool:
        """Check the new attempt sentence by sentence; what passed of one that failed stays, and its verdict is that of what failed."""
        ends = whole_ends(self.begun, self.text)
        started = time.perf_counter()
        beginnings = [self.text[:end] for end in ends]
        results = self.checker.check(beginnings, deadline=self.checker.deadline(self.reply), is_whole=True)
        self.reply.waited_ms += round((time.perf_counter() - started) * 1000)
        for end, result in zip(ends, results, strict=True):
            self.result = result
            if not result.passed:
                failed = self.text[len(self.begun) :]
                self.space = failed[: len(failed) - len(failed.lstrip())]
                return False
            self.reply.note_passed(self.text[:end], StoredResult.of(result))
            if end < len(self.text):
                self.begun = self.text[:end]
        return True

    def _force_through(self) -> None:
        """Say what the operator wrote for this, else the best attempt. Where that is the model's own, the model goes on."""
        fallback = self.checker.speaker.parameters.fallback_text
        if fallback:
            self.reply.outcome = Outcome.CORRECTED  # something else is said than what was sent back
            self.reply.say(self.begun + self.space + fallback)
            return
        best = best_attempt(self.session.attempts)
        self.reply.outcome = Outcome.FORCED_THROUGH
        self.reply.best = best.attempt
        if self.reply.raw.startswith(best.judged_text):
            self.reply.force(len(best.judged_text))
        else:
            self.reply.say(best.judged_text)


def rewrite(reply: ReplySoFar, checker: Checker, *, failed_text: str, result: GateResult) -> None:
    """Have a reply written again from behind what passed of it, and note what is said from now on.

    Args:
        failed_text: The beginning of the reply that failed.
        result: Its verdict.
    """
    failed = failed_text[len(reply.passed) :]
    reply.failure = None
    Rewriting(
        reply=reply,
        checker=checker,
        begun=reply.passed,
        space=failed[: len(failed) - len(failed.lstrip())],
        text=failed_text,
        result=result,
    ).run()


def _add_turn(turns: list[Turn], is_own: bool, text: str) -> None:
    """Add a message to the turns of a conversation, of which neighbours of one role are put together."""
    if is_own and not turns:
        turns.append(Turn("user", (Block(BEGINNING),)))
    role: Any = "assistant" if is_own else "user"
    if turns and turns[-1].role == role:
        turns[-1] = Turn(role, (*turns[-1].blocks, Block(text)))
    else:
        turns.append(Turn(role, (Block(text),)))


def offline(request: LLMRequest) -> str:
    """Return the next of the agent's sample lines (responder for the task ``continue_reply``).

    Raises:
        InvalidAnswer: There is none that was not sent back.
    """
    facts: Mapping[str, Any] = request.facts
    lines = [line.strip() for line in facts["sample_lines"] if line.strip()]
    line = None
    if lines:
        line = next_line(lines, agent=facts["agent"], said=facts["said"], rejected=facts["rejected"])
    if line is None:
        raise InvalidAnswer("the scripted actor has no line of the agent's left to say")
    return line
