"""Stored answers in a file in place of a model, so that a run can be reproduced."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from agents.kit.llm.providers.base import LocalAnswer, LocalProvider
from agents.kit.llm.requests import Answer, LLMRequest, Status, are_objects, read_answer, short_line
from agents.kit.models import LLMPayload

ANSWERS = "answers.jsonl"  # in a zip that is replayed
MOST_UNPACKED = 500_000_000  # bytes of it


class Replay(LocalProvider):
    """The answers in a file that ``manage.py export_payloads`` wrote."""

    name = "replay"
    reads_files = True

    def answer(self, request: LLMRequest, model: str, digest: str) -> LocalAnswer:
        """Return the answer with this digest, judged again; `rejected` where the file has none or cannot be read."""
        path = replay_file(model)
        try:
            stored = _answers_by_digest(path, path.stat().st_mtime_ns).get(digest, {})
            if not stored:
                return _rejected(f"no stored answer for this request in {path}")
            blocks = stored.get("tool_calls", [])
            if not are_objects(blocks):
                raise ValueError("the tool_calls of an answer are not a list of objects")
            text = str(stored.get("text", ""))
            stop_reason = str(stored.get("stop_reason", ""))
            return LocalAnswer(
                answer=read_answer(request, text=text, stop_reason=stop_reason, tool_blocks=blocks),
                text=text,
                stop_reason=stop_reason,
                served_model=str(stored.get("served_model", "")),
            )
        except (OSError, ValueError) as problem:
            return _rejected(short_line(f"cannot read {path}: {problem}"))


def _rejected(error: str) -> LocalAnswer:
    return LocalAnswer(answer=Answer(Status.REJECTED, error=error))


PROVIDER = Replay()


def replay_file(model: str) -> Path:
    return Path(PROVIDER.bare_name(model)).expanduser()


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """Open a file of answers, or the one named `ANSWERS` in a zip, for reading line by line.

    Raises:
        ValueError: A zip holds no such file, or one of more than MOST_UNPACKED bytes.
    """
    if not zipfile.is_zipfile(path):
        with path.open(encoding="utf-8") as lines:
            yield lines
        return
    try:
        with zipfile.ZipFile(path) as archive, archive.open(ANSWERS) as raw:
            if (size := archive.getinfo(ANSWERS).file_size) > MOST_UNPACKED:
                raise ValueError(f"{ANSWERS} has {size:,} bytes; allowed: {MOST_UNPACKED:,}")
            yield io.TextIOWrapper(raw, encoding="utf-8")
    except (KeyError, zipfile.BadZipFile) as problem:
        raise ValueError(f"it holds no {ANSWERS}: {problem}") from None


@lru_cache(maxsize=4)
def _answers_by_digest(path: Path, _changed_at: int) -> dict[str, dict[str, Any]]:
    """Return the answers in a JSONL file by request digest; of equal digests the last line counts.

    The file is read again when `_changed_at`, the time of its last change, is another.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line is not a JSON object with a ``digest``, or a zip holds no answers or too many.
    """
    answers: dict[str, dict[str, Any]] = {}
    with _opened(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                answers[row["digest"]] = row
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"line {number} is not a JSON object with a digest") from None
    return answers


def export_answers(out: Path, *, since: datetime | None = None, work_ids: Collection[str] = ()) -> int:
    """Write stored answers as JSONL for a replay and return how many.

    One per request digest: the newest that was ``ok``, else the newest that the model gave at all, so that a replay
    meets the same refusals and malformed answers. Calls whose payload was not stored are not among them. Without any answer no file
    is written, and an old one stays.

    Args:
        out: The file; written beside its place first, so that a broken run leaves the old one.
        since: Only calls from then on.
        work_ids: Only calls that served this work.

    Raises:
        OSError: The file cannot be written.
    """
    answered = [Status.OK, Status.REFUSED, Status.TRUNCATED, Status.MALFORMED]
    payloads = LLMPayload.objects.filter(call__status__in=answered).exclude(call__request_digest="")
    if since is not None:
        payloads = payloads.filter(call__created_at__gte=since)
    if work_ids:
        payloads = payloads.filter(call__work_id__in=work_ids)
    chosen: dict[str, int] = {}
    for status in (None, Status.OK):  # the ok ones last: they win
        some = payloads if status is None else payloads.filter(call__status=status)
        chosen.update(some.order_by("call_id").values_list("call__request_digest", "pk"))
    if not chosen:
        return 0
    draft = out.with_name(out.name + ".part")
    with draft.open("w", encoding="utf-8") as lines:
        payload_ids = set(chosen.values())
        for payload in payloads.select_related("call").defer("request").order_by("pk").iterator(chunk_size=500):
            if payload.pk in payload_ids:
                call = payload.call
                row = {
                    "digest": call.request_digest,
                    "model": call.model,
                    "served_model": call.served_model,
                    "stop_reason": call.stop_reason,
                    "text": payload.reply,
                } | ({"tool_calls": payload.tool_calls} if payload.tool_calls else {})
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
    draft.replace(out)
    return len(chosen)
