"""Who answers a request: a distant endpoint (and what it turned out to be able to do), a responder of ours, or a stored answer."""

from __future__ import annotations

import io
import json
import logging
import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings
from django.utils.module_loading import import_string

from agents.kit.capability import declared
from agents.kit.llm.requests import (
    Answer,
    Exchange,
    InvalidAnswer,
    LLMRequest,
    Reply,
    Role,
    Status,
    Usage,
    parsed,
    read_answer,
    request_digest,
    short_line,
)
from agents.kit.models import LLMPayload

logger = logging.getLogger(__name__)

ANTHROPIC_URL = "https://api.anthropic.com"
PLACEHOLDER_KEY = "no-key-configured"  # some local servers insist on a header, none reads it
OFFLINE_MODELS: dict[Role, tuple[str, ...]] = {"judge": ("offline:lexical-1",), "actor": ("offline:scripted-1",)}
REPLAY_PREFIX = "replay:"
ANSWERS = "answers.jsonl"  # in a zip that is replayed
MOST_UNPACKED = 500_000_000  # bytes of it
RESCUES_BEFORE_EXAMPLE_FIRST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a request goes. Read from settings in the calling thread, then only passed along."""

    provider: str
    model: str
    base_url: str = ""
    endpoint: str = ""
    key: str = field(default="", repr=False)
    max_concurrency: int = 1
    gate_slots: int = 0
    problem: str = ""

    @property
    def is_default_endpoint(self) -> bool:
        return self.base_url == ANTHROPIC_URL

    @property
    def takes_temperature(self) -> bool:
        """Return whether a temperature may be sent: Anthropic's API refuses it, and so do its models behind another server."""
        return not self.is_default_endpoint and "claude" not in self.model.lower()

    @property
    def is_distant(self) -> bool:
        """Return whether a request goes over the network."""
        return self.provider == "anthropic" and not self.problem


def provider_of(model: str) -> str:
    """Return the provider a model string names: ``offline:NAME``, ``replay:FILE``, else Anthropic's API or a server that speaks it."""
    name, _, _ = model.partition(":")
    return name if name != model and name in AT_HAND else "anthropic"


def model_of(role: Role) -> str:
    return str(settings.JUDGE_MODEL if role == "judge" else settings.ACTOR_MODEL)


def base_url_of(role: Role) -> str:
    return str(settings.JUDGE_BASE_URL if role == "judge" else settings.ACTOR_BASE_URL)


def replay_file(model: str) -> Path:
    return Path(model.removeprefix(REPLAY_PREFIX)).expanduser()


def problem_of(role: Role, model: str) -> str:
    """Return a sentence on what to set when `model` cannot be called for want of a usable key or base URL; empty when it can."""
    key = settings.ANTHROPIC_API_KEY
    if provider_of(model) != "anthropic":
        return ""
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        return "ANTHROPIC_API_KEY holds a blank or a character that no key has: copy it again"
    name = role.upper()
    if base_url_of(role) and (fault := _url_fault(base_url_of(role))):
        return f"{name}_BASE_URL (or ANTHROPIC_BASE_URL) {fault}"
    if key or base_url_of(role):
        return ""
    return (
        f"{name}_MODEL is {model!r} but no key is set: set ANTHROPIC_API_KEY, or {name}_BASE_URL to a server that "
        f"speaks the same API, or {name}_MODEL={OFFLINE_MODELS[role][0]} to work without a model"
    )


def _url_fault(url: str) -> str:
    """Return what is wrong with a base URL, without showing it: it may hold a password."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # ValueError where the port is none
    except ValueError:
        return "is not a URL: write http:// or https://, a host, and a port from 1 to 65535"
    if parts.scheme not in ("http", "https") or not host:
        return "must start with http:// or https:// and name a host"
    if "@" in url:
        return "holds a user name or password: leave it out and set ANTHROPIC_API_KEY"
    return ""


def route(request: LLMRequest) -> Route:
    """Return the route of `request`, from its own model or its role's settings, read now."""
    return route_of(request.role, request.model)


def route_of(role: Role, model: str = "") -> Route:
    """Return the route of a role, from the settings; `model` overrides the configured one.

    A route of a model that answers in this process (``offline:``, ``replay:``) has no address. One that cannot be called, e.g. for want
    of a key, says why in `problem`.
    """
    model = model or model_of(role)
    provider = provider_of(model)
    if provider != "anthropic":
        return Route(provider=provider, model=model)
    configured = base_url_of(role).rstrip("/")
    base_url = configured or ANTHROPIC_URL
    return Route(
        provider=provider,
        model=model,
        base_url=base_url,
        endpoint=without_credentials(base_url),
        key=settings.ANTHROPIC_API_KEY or PLACEHOLDER_KEY,
        max_concurrency=max(1, settings.LLM_MAX_CONCURRENCY),
        gate_slots=max(0, settings.LLM_GATE_SLOTS),
        problem=problem_of(role, model),
    )


def without_credentials(url: str) -> str:
    """Return `url` without user, password, query and fragment; empty when it is no URL with a host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if not parts.netloc:
        return ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


@dataclass(slots=True)
class Ability:
    """What an endpoint's model was seen to do. Used in the loop thread only.

    Attributes:
        schema, temperature: False once the endpoint refused it.
        rescues: Times in a row that a worked example saved an answer which had failed without it.
    """

    schema: bool = True
    temperature: bool = True
    rescues: int = 0

    @property
    def example_first(self) -> bool:
        return self.rescues >= RESCUES_BEFORE_EXAMPLE_FIRST

    def note(self, statuses: Sequence[Status]) -> None:
        """Remember how a request with a schema ended: the status of the first answer and, if asked again, of the second.

        Not called for Anthropic's own API, which enforces schemas: an example there would only colour the judge's answers.
        """
        if statuses[0] is Status.MALFORMED and statuses[-1] is Status.OK:
            self.rescues += 1
        elif statuses[0] is Status.OK and not self.example_first:  # where the example is shown first, it earns the OK
            self.rescues = 0

    def forgo(self, what: Literal["schema", "temperature"], route: Route, error: str) -> None:
        """Remember that the endpoint refused a schema, or a temperature: it is not sent again."""
        if getattr(self, what):
            setattr(self, what, False)
            words = "%s takes no %s for %s (%s): sent without from now on"
            logger.warning(words, route.endpoint, what, route.model, error)


_abilities: dict[tuple[str, str], Ability] = {}


def ability(route: Route) -> Ability:
    """Return what is known of this endpoint and model in this process."""
    return _abilities.setdefault((route.base_url, route.model), Ability())


def forget() -> None:
    """Forget what endpoints can do, e.g. after a server was replaced by another at the same address."""
    _abilities.clear()


def answer_at_hand(request: LLMRequest, route: Route) -> Exchange:
    """Return the answer of a provider in this process (see `AT_HAND`), given in the calling thread: no tokens, no attempts, no cost."""
    started_at, begun, digest = time.time(), time.perf_counter(), request_digest(request)
    answer, stored = AT_HAND[route.provider](request, route.model, digest)
    reply = Reply(
        status=answer.status,
        value=answer.value,
        error=answer.error,
        text=str(stored.get("text", "")),
        tool_calls=answer.tool_calls,
        stop_reason=str(stored.get("stop_reason", "")),
        provider=route.provider,
        model=route.model,
        served_model=str(stored.get("served_model", "")),
        usage=Usage(0, 0, 0, 0),
        request_digest=digest,
        latency_ms=round((time.perf_counter() - begun) * 1000),
        attempts=0,
    )
    return Exchange(reply, started_at)


def _respond(request: LLMRequest, model: str, digest: str) -> tuple[Answer, dict[str, Any]]:
    """Ask the responder of the request's task; return its answer and what the ledger keeps of it.

    An app declares its responders as `offline_responders`, by dotted paths. A responder takes the request and returns the object that a
    model would have written as JSON (or text, where the request has no schema). Where the request has tools it may
    return ``{"text": str, "tool_calls": [{"name": str, "input": {…}}, …]}``. It raises `LookupError` where it has no
    answer (`rejected`) and `InvalidAnswer` where the request makes no sense to it (`malformed`). Any other exception is logged and
    the answer `rejected`, too. A text is read as a model's answer is; an object needs no reading.
    """
    given: Any = ""
    blocks: list[dict[str, Any]] = []
    try:
        given = _responder_of(request)(request)
        if request.tools and isinstance(given, dict):
            blocks = given.get("tool_calls", [])
            given = given.get("text", "")
            if not isinstance(given, str) or not _are_objects(blocks):
                raise InvalidAnswer("the responder's text must be a string and its tool_calls a list of objects")
    except LookupError as problem:
        answer = Answer(
            Status.REJECTED, error=short_line(str(problem.args[0] if problem.args else "no offline answer"))
        )
    except InvalidAnswer as problem:
        answer = Answer(Status.MALFORMED, error=short_line(str(problem)))
    except Exception as problem:
        logger.exception("the offline responder of task %s failed", request.task)
        error = short_line(f"the offline responder failed: {type(problem).__name__}: {problem}")
        answer = Answer(Status.REJECTED, error=error)
    else:
        if not isinstance(given, str):
            text = json.dumps(given, ensure_ascii=False, default=str)
            return parsed(request, given), {"text": text, "served_model": model}
        answer = read_answer(request, text=given, stop_reason="", tool_blocks=blocks)
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    return answer, {"text": text, "served_model": model}


def _responder_of(request: LLMRequest) -> Callable[[LLMRequest], Any]:
    """Return the responder of the request's task; LookupError where no app declares one."""
    responders = declared("offline_responders")
    if request.task not in responders:
        known = ", ".join(sorted(responders)) or "none"
        raise LookupError(f"no offline responder for task {request.task!r} (there are: {known}); this needs an LLM")
    responder: Callable[[LLMRequest], Any] = import_string(responders[request.task])
    return responder


def _replay(request: LLMRequest, model: str, digest: str) -> tuple[Answer, dict[str, Any]]:
    """Answer from a file that ``manage.py export_payloads`` wrote; return the answer and its line of the file.

    The answer is `rejected` where the file has none for this digest or cannot be read; then nothing is kept.
    """
    path = replay_file(model)
    try:
        stored = _answers_by_digest(path, path.stat().st_mtime_ns).get(digest, {})
        if not stored:
            return Answer(Status.REJECTED, error=f"no stored answer for this request in {path}"), {}
        blocks = stored.get("tool_calls", [])
        if not _are_objects(blocks):
            raise ValueError("the tool_calls of an answer are not a list of objects")
        text, stop_reason = str(stored.get("text", "")), str(stored.get("stop_reason", ""))
        return read_answer(request, text=text, stop_reason=stop_reason, tool_blocks=blocks), stored
    except (OSError, ValueError) as problem:
        return Answer(Status.REJECTED, error=short_line(f"cannot read {path}: {problem}")), {}


# The providers that answer in this process, at no cost, by what stands before the colon in a model's name. Given the request, the model
# and the request's digest, they return the answer, and what the ledger keeps of it: text, stop_reason, served_model.
AT_HAND: dict[str, Callable[[LLMRequest, str, str], tuple[Answer, dict[str, Any]]]] = {
    "offline": _respond,
    "replay": _replay,
}


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


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
        wanted = set(chosen.values())
        for payload in payloads.select_related("call").defer("request").order_by("pk").iterator(chunk_size=500):
            if payload.pk in wanted:
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
