"""Answer a round of LiteLLM: nothing while the gate is off, what may go out of a reply while it enforces."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django.utils import timezone
from django.utils.crypto import salted_hmac

from agents.kit.text.storable import storable
from agents.transcripts.prepare import slug_of
from agents.transcripts.readers.traces import ASSISTANT, TOOL_RESULT, USER, items_of
from correction.gate.check import GateResult
from correction.litellm.checking import SYSTEM, TOOL, CallContext, Checker, Said, Speaker, find_speaker
from correction.litellm.contract import NOTHING_TO_SAY, GuardrailAnswer, Round
from correction.litellm.models import IDLE, GatedReply
from correction.litellm.replies import CALL_FAILED, ReplySoFar, StoredResult, Whose, digest_of, match_replies, new_ends
from correction.litellm.rewriting import is_marked, rewrite
from correction.models import GateMode

logger = logging.getLogger(__name__)
NOT_HELD = (
    "a sentence failed the gate, and LiteLLM sends streams of /v1/messages as the model writes them: attach the guardrail by a policy "
    "with a pipeline in post_call, so that they are held until they are checked"
)
REMEMBERED = 200  # messages before a reply that are judged with it, and stored
MOST_LOST_RACES = 5  # rounds of one call at the same time
CHANNEL_PREFIX = "litellm-"  # what clients call their conversations must not lead into other channels


def answer_round(asked: Round, *, user_id: int) -> GuardrailAnswer:
    """Return what LiteLLM is to do with a call or with the texts of its reply so far. No transaction may be open.

    Raises:
        Refused: The agent of the configuration does not exist.
    """
    if is_marked(asked, user_id=user_id):  # a call of ours, which writes a sentence again
        return NOTHING_TO_SAY
    speaker = find_speaker(asked.parameters, is_call=asked.input_type == "request")
    if speaker.config.gate_is_off or not asked.litellm_call_id:
        return NOTHING_TO_SAY
    if asked.input_type == "request":
        _note_call(asked, speaker, user_id)
        return NOTHING_TO_SAY
    texts = storable(asked.texts or [])
    if not any(texts):
        return NOTHING_TO_SAY
    if speaker.config.gate_mode == GateMode.OBSERVE:
        _update_replies(asked, speaker, user_id, lambda replies, context: _note_texts(replies, texts))
        return NOTHING_TO_SAY
    replies = _update_replies(
        asked, speaker, user_id, lambda known, context: _check_texts(known, texts, context, speaker)
    )
    answered = replies[: len(texts)]
    is_changed = any(not text.startswith(reply.text) for text, reply in zip(texts, answered, strict=True))
    if is_changed and asked.is_of_messages_api and any(reply.rounds > 1 for reply in answered):
        logger.warning(NOT_HELD)
        return GuardrailAnswer(action="BLOCKED", blocked_reason=NOT_HELD)
    return GuardrailAnswer(
        action="GUARDRAIL_INTERVENED" if is_changed else "NONE",
        texts=[reply.text for reply in answered],
        stream_holdback_chars=[len(reply.rest) for reply in answered],
    )


def _note_call(asked: Round, speaker: Speaker, user_id: int) -> None:
    """Store what a call brings with it; a call that is posted again before its reply stays as it is.

    A client may give its calls ids of its own, and two calls the same: the reply of the earlier one is stored under another id.
    """
    earlier = GatedReply.objects.filter(user=user_id, call_id=asked.litellm_call_id, rounds__gt=0)
    earlier.update(call_id=f"earlier:{uuid4()}")
    GatedReply.objects.bulk_create([_new_row(asked, speaker, user_id)], ignore_conflicts=True)


def _new_row(asked: Round, speaker: Speaker, user_id: int) -> GatedReply:
    """Return the row of a call, not saved yet; the conversation of a speaker who is no agent is not stored, so that it has no channel."""
    context = read_context(asked, speaker)
    now = timezone.now()
    return GatedReply(
        user_id=user_id,
        call_id=asked.litellm_call_id or "",
        agent=speaker.agent,
        context=context.model_dump(),
        conversation=_channel_slug(asked, context, speaker.agent.slug) if speaker.agent is not None else "",
        last_round_at=now,
        lease_expires_at=now + IDLE,
    )


def read_context(asked: Round, speaker: Speaker) -> CallContext:
    """Return what was said before; of a long conversation its last messages."""
    messages: list[Said] = []
    systems: list[str] = []
    end_user = storable(asked.request_data.user_api_key_end_user_id or "")
    for item in items_of(storable(asked.structured_messages or []), USER) or []:
        if item.skip == TOOL_RESULT and item.text.strip():
            messages.append(Said(role=TOOL, text=item.text))
        if item.skip or not item.text.strip():
            continue
        if item.role in (SYSTEM, "developer"):
            systems.append(item.text)
        elif item.role == ASSISTANT:
            messages.append(Said(role=ASSISTANT, text=item.text))
        else:
            messages.append(Said(role=item.role, text=item.text, name=item.name or end_user))
    return CallContext(
        messages=messages[-REMEMBERED:],
        left_out=max(0, len(messages) - REMEMBERED),
        system="\n\n".join(systems),
        speaker="" if speaker.agent is not None else speaker.name,
    )


def _channel_slug(asked: Round, context: CallContext, agent: str) -> str:
    """Return the slug of the conversation's channel: by the session that the client names, else by the person, else by how it begins.

    No session leads into the channel of another agent, person or, where no person is named, key of LiteLLM.
    """
    session = storable(asked.session)
    end_user = storable(asked.request_data.user_api_key_end_user_id or "")
    caller = end_user or storable(asked.request_data.user_api_key_hash or "")
    if session:
        known_by = ["session", agent, caller, session]
    elif end_user:
        known_by = ["user", agent, end_user]
    elif context.messages and not context.left_out:
        known_by = ["first message", agent, caller, context.system, context.messages[0].text.strip()]
    else:
        known_by = ["call", asked.litellm_call_id or ""]
    # With the installation's key: who sees the slug cannot try whose id it was made of.
    digest = salted_hmac(CHANNEL_PREFIX, "\x00".join(known_by), algorithm="sha256").hexdigest()[:16]
    words = slug_of(session)[:60].strip("-_")  # of the session; the id of a person does not stand in a slug
    return CHANNEL_PREFIX + "-".join(filter(None, [words, digest]))


Change = Callable[[list[ReplySoFar], CallContext], list[ReplySoFar]]


def _update_replies(asked: Round, speaker: Speaker, user_id: int, change: Change) -> list[ReplySoFar]:
    """Read the replies of a call, change them, and store them unless another round was faster: then they are read and changed again.

    Args:
        change: Returns the replies of this round in the order of its texts, then those that have none in it; may be called again.

    Returns:
        The changed replies.
    """
    replies: list[ReplySoFar] = []
    for _ in range(MOST_LOST_RACES):
        row = GatedReply.objects.filter(user=user_id, call_id=asked.litellm_call_id).first()
        if row is None:  # LiteLLM posts no request rounds, or the gate was off then
            GatedReply.objects.bulk_create([_new_row(asked, speaker, user_id)], ignore_conflicts=True)
            continue
        known = [ReplySoFar.model_validate(reply) for reply in row.replies]
        replies = change(known, CallContext.model_validate(row.context))
        if _store_round(row, replies):
            break
    return replies


def _store_round(row: GatedReply, replies: Sequence[ReplySoFar]) -> bool:
    """Store the replies of a round; return False where another round was stored since the row was read.

    A row that is being ended, or was, is open again: the reply goes on after a long pause.
    """
    same = GatedReply.objects.filter(pk=row.pk, rounds=row.rounds)
    now = timezone.now()
    changes: dict[str, Any] = {
        "replies": [reply.model_dump(mode="json") for reply in replies],
        "rounds": row.rounds + 1,
        "last_round_at": now,
        "lease_expires_at": now + IDLE,
    }
    if row.status != GatedReply.Status.PENDING:
        changes |= {"status": GatedReply.Status.PENDING, "lease_owner": "", "finished_at": None}
    return bool(same.update(**changes))


def _note_texts(known: Sequence[ReplySoFar], texts: Sequence[str]) -> list[ReplySoFar]:
    """Return the replies with the texts of a round, unchecked."""
    matched = match_replies(texts, known)
    for reply, text in zip(matched, texts, strict=True):
        if len(text) > len(reply.raw):
            reply.note_text(text)
            reply.passed = text
    return _with_others(matched, known)


def _with_others(matched: list[ReplySoFar], known: Sequence[ReplySoFar]) -> list[ReplySoFar]:
    """Return the replies of a round, then those that have no text in it."""
    matched_ids = {reply.session for reply in matched}
    return [*matched, *(reply for reply in known if reply.session not in matched_ids)]


def _check_texts(
    known: Sequence[ReplySoFar], texts: Sequence[str], context: CallContext, speaker: Speaker
) -> list[ReplySoFar]:
    """Return the replies after the new sentences of a round were checked."""
    matched = match_replies(texts, known)
    for reply, text in zip(matched, texts, strict=True):
        if len(text) >= len(reply.raw):
            _check_text(reply, text, context, speaker)
    return _with_others(matched, known)


def _check_text(reply: ReplySoFar, text: str, context: CallContext, speaker: Speaker) -> None:
    """Check what is new in a reply, and note how far it passed.

    Args:
        text: What the model wrote so far.
    """
    reply.note_text(text)
    if reply.whose == Whose.OURS:
        return
    if reply.whose == Whose.FORCED:
        reply.passed = text
        reply.rest = ""
        return
    checker = Checker(speaker, context, reply.session)
    ends = new_ends(reply.passed, text)
    failure = _check_new(reply, checker, text, ends)
    if failure is None:
        if ends:
            reply.passed = text[: ends[-1]]
        reply.rest = text[len(reply.passed) :]
        return
    passed_ends = [end for end in ends if end < failure.end]
    if passed_ends:
        reply.passed = text[: passed_ends[-1]]
    reply.rest = ""
    is_unfinished = failure.end not in ends
    if is_unfinished and reply.passed.strip() and reply.withheld != digest_of(text):
        # It may be well once it is finished. Where this was the last round, the reply ends with its last sentence that passed.
        reply.withheld = digest_of(text)
        return
    rewrite(reply, checker, failed_text=text[: failure.end], result=failure.result)


@dataclass(frozen=True)
class _Failure:
    """The first beginning of a reply that failed: its length and its verdict."""

    end: int
    result: GateResult


def _check_new(reply: ReplySoFar, checker: Checker, text: str, ends: Sequence[int]) -> _Failure | None:
    """Check a reply up to each of these places, and up to its end where that is unfinished; return the first failure, if there is one.

    What passed before is not checked again; what passes is remembered.
    """
    places = [*ends]
    if text[ends[-1] if ends else len(reply.passed) :].strip():
        places.append(len(text))
    unknown = [end for end in places if not reply.has_passed(text[:end])]
    started = time.perf_counter()
    results = checker.check([text[:end] for end in unknown], deadline=checker.deadline(reply))
    if any(row.status in CALL_FAILED for result in results for row in result.dimensions):
        reply.late_ms += round((time.perf_counter() - started) * 1000)
    for end, result in zip(unknown, results, strict=True):
        if not result.passed:
            return _Failure(end, result)
        reply.note_passed(text[:end], StoredResult.of(result))
    return None
