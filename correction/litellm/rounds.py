"""Answer a round of LiteLLM: nothing while the gate is off, what may go out of a reply while it enforces."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.crypto import salted_hmac

from agents.kit.text.storable import storable
from agents.transcripts.prepare import slug_of
from agents.transcripts.readers.traces import ASSISTANT, TOOL_RESULT, USER, items_of
from correction.gate.results import GateResult
from correction.litellm.checking import SYSTEM, TOOL, CallContext, CallMessage, Checker, Speaker, find_speaker
from correction.litellm.contract import NOTHING_TO_SAY, GuardrailAnswer, Round
from correction.litellm.models import IDLE, WAITING, GatedReply
from correction.litellm.replies import ReplySoFar, StoredResult, Whose, match_replies, new_ends
from correction.litellm.rewriting import SessionTaken, is_marked, rewrite
from correction.models import GateMode, Outcome

logger = logging.getLogger(__name__)
NOT_HELD = (
    "a sentence failed the gate, and LiteLLM sends streams of /v1/messages as the model writes them: attach the guardrail by a policy "
    "with a pipeline in post_call, so that they are held until they are checked"
)
OVER = f"the reply paused for more than {IDLE.total_seconds() / 60:g} minutes, and is stored as it was then: begin a new call"
LAST_WORD = re.compile(r"\S+\Z")
REMEMBERED = 200  # messages before a reply that are judged with it, and stored
ROUND_SECONDS = 90.0  # for all checks and rewriting of a round: LiteLLM waits for 100 (`timeout` of the example)
MOST_LOST_RACES = 5  # rounds of one call at the same time
CHANNEL_PREFIX = "litellm-"  # what clients call their conversations must not lead into other channels


def answer_round(gateway_round: Round, *, user_id: int) -> GuardrailAnswer:
    """Return what LiteLLM is to do with a call or with the texts of its reply so far. No transaction may be open.

    Raises:
        Refused: The agent of the configuration does not exist.
    """
    if is_marked(gateway_round, user_id=user_id):  # a call of ours, which writes a sentence again
        return NOTHING_TO_SAY
    speaker = find_speaker(gateway_round.parameters, is_call=gateway_round.input_type == "request")
    if speaker.config.gate_is_off or not gateway_round.litellm_call_id:
        return NOTHING_TO_SAY
    if gateway_round.input_type == "request":
        _note_call(gateway_round, speaker, user_id)
        return NOTHING_TO_SAY
    texts = storable(gateway_round.texts or [])
    if not any(texts):
        return NOTHING_TO_SAY
    if speaker.config.gate_mode == GateMode.OBSERVE:
        _update_replies(gateway_round, speaker, user_id, lambda matched, context: _note_texts(matched, texts))
        return NOTHING_TO_SAY
    ends_at = time.monotonic() + ROUND_SECONDS

    def check(matched: Sequence[ReplySoFar], context: CallContext) -> None:
        def checker_of(reply: ReplySoFar) -> Checker:
            return Checker(
                speaker, context, reply.session, ends_at=ends_at, is_sent_as_written=gateway_round.is_of_messages_api
            )

        _check_texts(matched, texts, checker_of)

    answered = _update_replies(gateway_round, speaker, user_id, check)
    if answered is None:
        return GuardrailAnswer(action="BLOCKED", blocked_reason=OVER)
    return _answer_with(gateway_round, texts, answered)


def _answer_with(gateway_round: Round, texts: Sequence[str], answered: Sequence[ReplySoFar]) -> GuardrailAnswer:
    """Return what LiteLLM is to send of the checked replies: what passed, with the unfinished rest held back.

    A stream of /v1/messages whose words were sent as the model wrote them cannot be changed: it is ended.
    """
    is_changed = any(not text.startswith(reply.text) for text, reply in zip(texts, answered, strict=True))
    is_changed_too_late = (
        is_changed and gateway_round.is_of_messages_api and any(reply.rounds > 1 for reply in answered)
    )
    if is_changed_too_late or any(reply.is_stopped for reply in answered):
        logger.warning(NOT_HELD)
        return GuardrailAnswer(action="BLOCKED", blocked_reason=NOT_HELD)
    return GuardrailAnswer(
        action="GUARDRAIL_INTERVENED" if is_changed else "NONE",
        texts=[reply.text for reply in answered],
        stream_holdback_chars=[len(reply.rest) for reply in answered],
    )


def _note_call(gateway_round: Round, speaker: Speaker, user_id: int) -> None:
    """Store what a call brings with it.

    A client may give its calls ids of its own, and two calls the same: the earlier one, whether it got a reply or not, goes on under
    another id.
    """
    _rename_call(_rows_of(gateway_round, user_id))
    GatedReply.objects.bulk_create([_new_row(gateway_round, speaker, user_id)], ignore_conflicts=True)


def _rows_of(gateway_round: Round, user_id: int) -> QuerySet[GatedReply]:
    """Return the row of a call, as a query."""
    return GatedReply.objects.filter(user=user_id, caller=_caller(gateway_round), call_id=gateway_round.litellm_call_id)


def _caller(gateway_round: Round) -> str:
    """Return a digest of who calls, as far as LiteLLM says it: the client's key and its end user."""
    known_by = [
        gateway_round.request_data.user_api_key_hash or "",
        gateway_round.request_data.user_api_key_end_user_id or "",
    ]
    return salted_hmac("caller", json.dumps(known_by), algorithm="sha256").hexdigest()


def _rename_call(rows: QuerySet[GatedReply]) -> None:
    """Give a call another id, so that a new one may have its id."""
    rows.update(call_id=f"earlier:{uuid4()}")


def _new_row(gateway_round: Round, speaker: Speaker, user_id: int) -> GatedReply:
    """Return the row of a call, not saved yet; the conversation of a speaker who is no agent is not stored, so that it has no channel."""
    context = read_context(gateway_round, speaker)
    now = timezone.now()
    return GatedReply(
        user_id=user_id,
        call_id=gateway_round.litellm_call_id or "",
        caller=_caller(gateway_round),
        agent=speaker.agent,
        context=context.model_dump(),
        conversation=_channel_slug(gateway_round, context, speaker.agent.slug) if speaker.agent is not None else "",
        last_round_at=now,
        lease_expires_at=now + WAITING,
    )


def read_context(gateway_round: Round, speaker: Speaker) -> CallContext:
    """Return what was said before; of a long conversation its last messages."""
    messages: list[CallMessage] = []
    systems: list[str] = []
    end_user = storable(gateway_round.request_data.user_api_key_end_user_id or "")
    for item in items_of(storable(gateway_round.structured_messages or []), USER) or []:
        if item.skip == TOOL_RESULT and item.text.strip():
            messages.append(CallMessage(role=TOOL, text=item.text))
        if item.skip or not item.text.strip():
            continue
        if item.role in (SYSTEM, "developer"):
            systems.append(item.text)
        elif item.role == ASSISTANT:
            messages.append(CallMessage(role=ASSISTANT, text=item.text))
        else:
            messages.append(CallMessage(role=item.role, text=item.text, name=item.name or end_user))
    return CallContext(
        messages=messages[-REMEMBERED:],
        left_out=max(0, len(messages) - REMEMBERED),
        system="\n\n".join(systems),
        speaker="" if speaker.agent is not None else speaker.name,
    )


def _channel_slug(gateway_round: Round, context: CallContext, agent: str) -> str:
    """Return the slug of the conversation's channel: by the session that the client names, else by the person, else by how it begins.

    No session leads into the channel of another agent, person or, where no person is named, key of LiteLLM.
    """
    session = storable(gateway_round.session)
    end_user = storable(gateway_round.request_data.user_api_key_end_user_id or "")
    caller = end_user or storable(gateway_round.request_data.user_api_key_hash or "")
    if session:
        known_by = ["session", agent, caller, session]
    elif end_user:
        known_by = ["user", agent, end_user]
    elif context.messages and not context.left_out:
        known_by = ["first message", agent, caller, context.system, context.messages[0].text.strip()]
    else:
        known_by = ["call", gateway_round.litellm_call_id or ""]
    # With the installation's key: who sees the slug cannot try whose id it was made of.
    digest = salted_hmac(CHANNEL_PREFIX, "\x00".join(known_by), algorithm="sha256").hexdigest()[:16]
    words = slug_of(session)[:60].strip("-_")  # of the session; the id of a person does not stand in a slug
    return CHANNEL_PREFIX + "-".join(filter(None, [words, digest]))


Change = Callable[[Sequence[ReplySoFar], CallContext], None]


class RoundLost(Exception):
    """Other rounds of the call were faster each time."""


def _update_replies(gateway_round: Round, speaker: Speaker, user_id: int, change: Change) -> list[ReplySoFar] | None:
    """Read the replies of a call, change them, and store them unless another round was faster: then they are read and changed again.

    Args:
        change: Changes the replies that the texts of the round belong to; may be called again.

    Returns:
        These replies, in the order of the texts; None where the call is over.

    Raises:
        RoundLost: Another round was faster too often.
    """
    texts = storable(gateway_round.texts or [])
    for _ in range(MOST_LOST_RACES):
        row = _rows_of(gateway_round, user_id).first()
        if row is None:  # LiteLLM posts no request rounds, or the gate was off then
            GatedReply.objects.bulk_create([_new_row(gateway_round, speaker, user_id)], ignore_conflicts=True)
            continue
        if row.status != GatedReply.Status.PENDING:
            if row.rounds:
                return None
            # It got no reply in time: what was said before is not known any more.
            _rename_call(_rows_of(gateway_round, user_id))
            continue
        replies = [ReplySoFar.model_validate(reply) for reply in row.replies]
        matched = match_replies(texts, replies, work_id=f"{row.pk} {row.created_at.isoformat()}")
        try:
            change(matched, CallContext.model_validate(row.context))
        except SessionTaken:
            continue
        if _store_round(row, _with_others(matched, replies)):
            return matched
    raise RoundLost(f"call {gateway_round.litellm_call_id}: {MOST_LOST_RACES} other rounds were stored meanwhile")


def _store_round(row: GatedReply, replies: Sequence[ReplySoFar]) -> bool:
    """Store the replies of a round; return False where another round was stored since the row was read, or the reply is being ended."""
    same = GatedReply.objects.filter(pk=row.pk, rounds=row.rounds, status=GatedReply.Status.PENDING)
    now = timezone.now()
    changes: dict[str, Any] = {
        "replies": [reply.model_dump(mode="json") for reply in replies],
        "rounds": row.rounds + 1,
        "last_round_at": now,
        "lease_expires_at": now + IDLE,
    }
    return bool(same.update(**changes))


def _note_texts(matched: Sequence[ReplySoFar], texts: Sequence[str]) -> None:
    """Note the texts of a round in their replies, unchecked."""
    for reply, text in zip(matched, texts, strict=True):
        if len(text) > len(reply.raw):
            reply.note_text(text)
            reply.passed = text
            reply.rest = ""


def _with_others(matched: Sequence[ReplySoFar], replies: Sequence[ReplySoFar]) -> list[ReplySoFar]:
    """Return the replies of a round and those without a text in it, by the order of the choices as far as it is known."""
    if len(matched) < len(replies):
        return [*replies, *(reply for reply in matched if reply not in replies)]
    return [*matched, *(reply for reply in replies if reply not in matched)]


def _check_texts(
    matched: Sequence[ReplySoFar], texts: Sequence[str], checker_of: Callable[[ReplySoFar], Checker]
) -> None:
    """Check the new sentences of a round."""
    for reply, text in zip(matched, texts, strict=True):
        if len(text) >= len(reply.raw):
            _check_text(reply, text, checker_of(reply))


def _check_text(reply: ReplySoFar, text: str, checker: Checker) -> None:
    """Check what is new in a reply, and note how far it passed.

    Args:
        text: What the model wrote so far.
    """
    if reply.is_stopped:
        return
    is_withheld_again = bool(reply.withheld) and text == reply.raw
    reply.note_text(text)
    while reply.whose == Whose.MODEL:
        ends = new_ends(reply.passed, text)
        failure = _check_new(reply, checker, text, ends)
        if failure is None:
            if ends:
                reply.note_place(ends[-1])
            return
        passed_ends = [end for end in ends if end < failure.end]
        if passed_ends:
            reply.note_place(passed_ends[-1])
        if reply.outcome == Outcome.FORCED_THROUGH:  # no attempt is left: it is said, and what follows is checked
            reply.force(failure.end, failure.result)
            continue
        is_first_round = reply.rounds == 1
        is_unfinished = failure.end not in ends
        may_wait = is_unfinished and not is_first_round and not is_withheld_again
        if may_wait and reply.passed.strip():
            # It may pass once it is finished. Where this was the last round, the reply ends with its last sentence that passed.
            reply.withhold(failure.result, from_place=len(reply.passed))
            return
        if may_wait and _fails_by_last_word(reply, checker, text):
            reply.withhold(failure.result, from_place=_start_of_last_word(text))
            return
        if checker.is_sent_as_written and not is_first_round:
            reply.withhold(failure.result, from_place=len(reply.passed))
            reply.is_stopped = True
            return
        # Where the model's own words are said in the end, for want of better ones, what follows them is checked, too.
        rewrite(reply, checker, failed_text=text[: failure.end], result=failure.result)


def _fails_by_last_word(reply: ReplySoFar, checker: Checker, text: str) -> bool:
    """Return whether a rule breaks at the last word of a text, which may be half of another, and what stands before it passes."""
    words = text[reply.judged_from : _start_of_last_word(text)]
    if not words.strip() or not checker.breaks_rules(text[reply.judged_from :]):
        return False
    [result] = checker.check([words], deadline=checker.deadline(reply))
    return result.passed


def _start_of_last_word(text: str) -> int:
    """Return where the last word of a text begins; its length where white space follows that."""
    match = LAST_WORD.search(text)
    return match.start() if match else len(text)


@dataclass(frozen=True)
class _Failure:
    """The first beginning of a reply that failed: its length and its verdict."""

    end: int
    result: GateResult


def _check_new(reply: ReplySoFar, checker: Checker, text: str, ends: Sequence[int]) -> _Failure | None:
    """Check a reply up to each of these places, and up to its end where that is unfinished; return the first failure, if there is one.

    What passed before is not checked again; what passes is remembered.
    """
    positions = [*ends]
    if text[ends[-1] if ends else len(reply.passed) :].strip():
        positions.append(len(text))
    unknown = [end for end in positions if not reply.has_passed(text[:end])]
    started = time.perf_counter()
    results = checker.check([text[reply.judged_from : end] for end in unknown], deadline=checker.deadline(reply))
    reply.waited_ms += round((time.perf_counter() - started) * 1000)
    for end, result in zip(unknown, results, strict=True):
        if not result.passed:
            return _Failure(end, result)
        reply.note_passed(text[:end], StoredResult.of(result))
    return None
