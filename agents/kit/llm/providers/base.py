"""What every provider has: the classes to derive one from, and the values that it takes and gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

from agents.kit.llm.requests import Answer, LLMRequest, Role, Status, Usage, short_line

if TYPE_CHECKING:
    import httpx2

OFFLINE_MODELS: dict[Role, tuple[str, ...]] = {"judge": ("offline:lexical-1",), "actor": ("offline:scripted-1",)}
PLACEHOLDER_KEY = "no-key-configured"  # SDKs and some local servers insist on one, none of these reads it
LONGEST_NAME = 16  # characters of a provider's name: those of the ledger's column
MAX_DETAIL = 300  # characters of a server's words
MOST_NESTED = 5  # objects within each other that are looked through for the words of an error
NAMES_OF_WORDS = ("message", "Message", "error", "detail", "msg")
REDIRECTED = "redirects are not followed: set the base URL to the address that answers"
# With these a server says that a prompt or an answer has too many tokens: nothing left out would help.
OVERFLOW_WORDS = ("too long", "too large", "too many tokens", "context")
MOST_TOKENS = 2**31 - 1  # the largest integer of a ledger column; a server that says more is not believed


class Provider(ABC):
    """Who answers for the models whose names begin with its own.

    Attributes:
        name: What stands before the colon in a model's name, and in the ledger; at most `LONGEST_NAME` characters.
        is_remote: Whether calls go over the network.
        is_priced: Whether calls cost money; then their price is looked up, and without one they are *unpriced*.
        is_default: Whether it answers for models whose name has no provider before a colon. One provider does.
        is_heuristic: Whether rules and scripts of ours answer, in place of a model.
        reads_files: Whether its models are names of files of this machine.
    """

    name: ClassVar[str]
    is_remote: ClassVar[bool]
    is_priced: ClassVar[bool] = False
    is_default: ClassVar[bool] = False
    is_heuristic: ClassVar[bool] = False
    reads_files: ClassVar[bool] = False

    def problem(self, role: Role, model: str, url: str) -> str:
        """Return a sentence on what to set or install when `model` cannot be called in this role; empty when it can.

        Args:
            url: The address that is set for the role (JUDGE_BASE_URL, ACTOR_BASE_URL) without a slash at its end; empty where none is.
        """
        return ""

    def bare_name(self, model: str) -> str:
        """Return the model's name without the provider's, as its server knows it."""
        return model if self.is_default else model.removeprefix(f"{self.name}:")

    def full_name(self, served_model: str) -> str:
        """Return the name under which a model that the server named has its price."""
        return served_model if self.is_default else f"{self.name}:{served_model}"


class LocalProvider(Provider):
    """Answers in this process and in the calling thread, at no cost."""

    is_remote = False

    @abstractmethod
    def answer(self, request: LLMRequest, model: str, digest: str) -> LocalAnswer:
        """Return the answer to a request with this digest (hex)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAnswer:
    """An answer that was given in this process, with what the ledger keeps of it."""

    answer: Answer
    text: str = ""
    stop_reason: str = ""
    served_model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a request goes. Read from settings in the calling thread, then only passed along.

    Attributes:
        model: As it is configured, with the provider's name before it; `model_at_server`: as the server knows it.
        endpoint: The base URL without credentials.
        key: A secret that is sent along, and blanked from errors.
        problem: What to set or install before it can be called.
    """

    provider: Provider
    model: str
    base_url: str = ""
    endpoint: str = ""
    key: str = field(default="", repr=False)
    max_concurrency: int = 1
    gate_slots: int = 0
    problem: str = ""

    @property
    def is_distant(self) -> bool:
        """Return whether a request goes over the network."""
        return self.provider.is_remote and not self.problem

    @property
    def model_at_server(self) -> str:
        return self.provider.bare_name(self.model)

    @property
    def remote(self) -> RemoteProvider:
        """Return the provider of a request that goes over the network; TypeError for another."""
        if not isinstance(self.provider, RemoteProvider):
            raise TypeError(f"{self.model} is not called over the network")
        return self.provider


@dataclass(frozen=True, slots=True)
class Failure:
    """How a call failed: the status, and one line for people."""

    status: Status
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a server answered.

    Attributes:
        stop_reason: ``refusal`` where the model or a filter refused, ``max_tokens`` or ``model_context_window_exceeded`` where the
            answer was cut, `requests.UNKNOWN_END` and the server's word where it may be cut, else as the server says it.
            The ledger, replays and `read_answer` know these words.
        tool_blocks: Made by `requests.tool_block`.
    """

    text: str
    stop_reason: str = ""
    tool_blocks: tuple[dict[str, Any], ...] = ()
    served_model: str = ""
    usage: Usage = field(default_factory=Usage)


class NoMessage(Exception):
    """Raised by `RemoteProvider.read`: a server answered 200 with something that is no message. Its text has the server's words."""


class RemoteProvider(Provider):
    """Answers over the network, by an SDK. `send` runs in the loop's thread, all else may run in any.

    Attributes:
        own_url: The address of the provider's own server; empty where it has none, or one for each account.
        request_id_headers: Headers in which servers name a request, the likeliest first.
        schema_field: The field of a body that holds the schema.
        schema_words: Words besides with which servers blame the schema, in lower case.
        hopeless_words: What the body of a 429 says where trying again cannot help, such as a spend limit.
        batches: How questions go in batches; None where that is not possible.
    """

    is_remote = True
    is_priced = True
    own_url: ClassVar[str] = ""
    request_id_headers: ClassVar[tuple[str, ...]] = ("request-id",)
    schema_field: ClassVar[str]
    schema_words: ClassVar[tuple[str, ...]] = ("schema", "structured")
    hopeless_words: ClassVar[tuple[str, ...]] = ()
    batches: ClassVar[Batches | None] = None

    # Where it is, from the settings, in the calling thread.
    @abstractmethod
    def base_url(self, url: str) -> str:
        """Return the address of the server without a slash at its end, or an empty text where it cannot be known; `url` as in `problem`."""

    def key(self) -> str:
        """Return the secret that is sent along; empty where the SDK finds its credentials by itself."""
        return ""

    # The client. It is made once in the calling thread, before any deadline runs.
    @abstractmethod
    def import_sdk(self) -> None:
        """Import the SDK with what it would import during its first call."""

    @abstractmethod
    def new_pool(self, route: Route, **options: Any) -> httpx2.AsyncClient:
        """Return an HTTP client of the SDK's defaults; `options` are further ones of httpx2, hooks and TLS among them."""

    @abstractmethod
    def new_client(self, route: Route, *, retries: int, pool: httpx2.AsyncClient) -> Any:
        """Return a client of the SDK over `pool`; nothing of the SDK's environment may send it to another server."""

    # One call.
    @abstractmethod
    def body(self, request: LLMRequest, route: Route, *, without: Collection[str]) -> dict[str, Any]:
        """Return the body as it is sent.

        Args:
            without: What is left out although the request has it: ``schema``, ``temperature``, and other names that `blamed` returns.
        """

    @abstractmethod
    async def send(self, client: Any, body: Mapping[str, Any], *, headers: Mapping[str, str], seconds: float) -> object:
        """Send a body with further headers and return what the SDK makes of the answer; raises what the SDK raises.

        The caller has its own total deadline; `seconds` is what is left of it.
        """

    @abstractmethod
    def failure_of(self, problem: Exception, route: Route) -> Failure | None:
        """Return how a call failed that raised an error of the SDK; None for an exception that is none of the SDK's."""

    @abstractmethod
    def read(self, answer: object) -> Message:
        """Return what `send` returned as a message.

        Raises:
            NoMessage: It is none.
        """

    # What a server takes.
    def is_own_server(self, route: Route) -> bool:
        """Return whether the server is the provider's own, known to enforce schemas and to use tools; others are observed."""
        return bool(self.own_url) and route.base_url == self.own_url

    def takes_temperature(self, route: Route) -> bool:
        """Return whether a temperature may be sent."""
        return True

    def blamed(self, route: Route, body: Mapping[str, Any], error: str) -> str:
        """Return what in a body the words of an HTTP 400 or 422 name.

        Returns:
            A name for `body` to leave out: ``temperature``, ``schema``, or one of the provider's own; empty where they name nothing.
        """
        words = error.lower()
        if "temperature" in body and "temperature" in words:
            return "temperature"
        if self.schema_field in body and any(word in words for word in (self.schema_field, *self.schema_words)):
            return "schema"
        return ""

    def suspected(self, route: Route, body: Mapping[str, Any], error: str) -> str:
        """Return what in a body an HTTP 400 or 422 that names nothing may be about, as `blamed` does; asked without it, it will turn out.

        A provider's own server names what it refuses.
        """
        is_about_tools = "tools" in body and "tool" in error.lower()  # without them there would be nothing to ask
        if self.is_own_server(route) or is_overflow(error) or is_about_tools:
            return ""
        return self.suspect(body, error)

    def suspect(self, body: Mapping[str, Any], error: str) -> str:
        """Return the likeliest thing in a body that a server refuses without naming it, as `blamed` does."""
        return "schema" if self.schema_field in body else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """How far a batch is.

    Attributes:
        size: Requests in it; `processing`: those that are not done.
        has_results: Whether results may be read, once it has ended.
    """

    id: str
    status: str
    created_at: datetime
    expires_at: datetime | None
    size: int
    processing: int
    has_ended: bool
    has_results: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the results of a batch: `result` is succeeded, errored, expired or canceled."""

    custom_id: str
    result: str
    text: str = ""
    stop_reason: str = ""
    served_model: str = ""
    usage: Usage = field(default_factory=Usage)
    error: str = ""


class Batches(ABC):
    """How questions go in batches, in the loop's thread; raises what the SDK raises. `client` is of `RemoteProvider.new_client`."""

    @abstractmethod
    async def submit(self, client: Any, requests: Sequence[tuple[str, dict[str, Any]]]) -> BatchState:
        """Submit bodies by custom id."""

    @abstractmethod
    async def check(self, client: Any, batch_id: str) -> BatchState:
        """Return how far a batch is."""

    @abstractmethod
    async def cancel(self, client: Any, batch_id: str) -> None:
        """Ask the server to stop; what was answered until then is in the results."""

    @abstractmethod
    async def since(self, client: Any, begin: datetime) -> list[BatchState]:
        """Return the batches made since then, oldest first."""

    @abstractmethod
    async def results(self, client: Any, batch_id: str) -> AsyncIterator[Entry]:
        """Return the results as they stream in, in no order."""


def key_fault(key: str) -> str:
    """Return what is wrong with a key, without showing it; empty where nothing is."""
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        return "holds a blank or a character that no key has: copy it again"
    return ""


def is_installed(*modules: str) -> bool:
    """Return whether all of these modules can be imported; the module itself is not, only the packages that it is in."""
    try:
        return all(find_spec(module) is not None for module in modules)
    except ModuleNotFoundError:  # of a package on the way
        return False


def url_fault(url: str, *, key_setting: str) -> str:
    """Return what is wrong with a base URL, without showing it, as it may hold a password; empty where nothing is.

    Args:
        key_setting: Where a key belongs in place of a password.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # ValueError where the port is none
    except ValueError:
        return "is not a URL: write http:// or https://, a host, and a port from 1 to 65535"
    if parts.scheme not in ("http", "https") or not host:
        return "must start with http:// or https:// and name a host"
    if "@" in url:
        return f"holds a user name or password: leave it out and set {key_setting}"
    return ""


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


def no_key(role: Role, model: str, *, key_setting: str, speaks: str) -> str:
    """Return the sentence for a model that needs a key or a server, where neither is set. `speaks` says what the server has to speak."""
    name = role.upper()
    return (
        f"{name}_MODEL is {model!r} but no key is set: set {key_setting}, or {name}_BASE_URL to a server that speaks {speaks}, "
        f"or {name}_MODEL={OFFLINE_MODELS[role][0]} to work without a model"
    )


def failure_without_answer(sdk: Any, problem: Exception, route: Route) -> Failure | None:
    """Return how a call failed to which no HTTP answer came whole; None for any other exception.

    Args:
        sdk: The module of the SDK, whose errors are named as Stainless, which generates both of ours, names them.
    """
    import httpx2

    if isinstance(problem, sdk.APITimeoutError):
        return Failure(Status.TIMEOUT, f"{route.endpoint} did not answer in time")
    if isinstance(problem, sdk.APIConnectionError):
        cause = problem.__cause__ or problem
        error = f"no answer from {route.endpoint}: {type(cause).__name__}: {cause}".rstrip(": ")
        return Failure(Status.UNAVAILABLE, error)
    if isinstance(problem, httpx2.TransportError):  # SDKs do not wrap what breaks off while the answer is read
        return Failure(Status.UNAVAILABLE, f"{route.endpoint} broke off: {type(problem).__name__}: {problem}")
    return None


def failure_by_status(http_status: int, words: str, hint: str) -> Failure:
    """Return the failure of an HTTP error, with the server's words (300 characters) and, where it is known, what to do.

    For example ``HTTP 401: invalid x-api-key (check ANTHROPIC_API_KEY)``.
    """
    if is_redirect(http_status):
        hint = REDIRECTED
    line = short_line(f"HTTP {http_status}: {words}", MAX_DETAIL)
    return Failure(status_of(http_status), f"{line} ({hint})" if hint else line)


def hint_of_404(words: str, route: Route, path: str) -> str:
    """Return what a 404 means: the model, where the server speaks of one, else an address at which there is no such server."""
    if "model" in words.lower() or route.model_at_server in words:
        return "check the model's name"
    return f"this server has no {path}: check the base URL {route.endpoint}, to which {path} is added"


def is_redirect(http_status: int) -> bool:
    return 300 <= http_status < 400


def status_of(http_status: int) -> Status:
    """Return what an HTTP error status means for the caller: wait (`rate_limited`), try later (`unavailable`), or change something."""
    if http_status == 429:
        return Status.RATE_LIMITED
    if http_status in (408, 409) or http_status >= 500:
        return Status.UNAVAILABLE
    return Status.REJECTED


def is_overflow(error: str) -> bool:
    """Return whether a server's words say that there were too many tokens."""
    words = error.lower()
    return any(word in words for word in OVERFLOW_WORDS)


def words_of(body: object) -> str:
    """Return what a server said of an error, with the field that it names; empty where it said nothing.

    It may be a text, or an object with message, error or detail, or a list of them, within each other.
    """
    field = ""
    for _ in range(MOST_NESTED):
        if isinstance(body, str):
            return f"{body} (of {field})" if body and field not in body else body
        if isinstance(body, list):
            body = body[0] if body else ""  # Gemini's
        elif isinstance(body, Mapping):
            field = _field_of(body) or field
            body = next((body[name] for name in NAMES_OF_WORDS if body.get(name)), "")
    return ""


def _field_of(error: Mapping[str, Any]) -> str:
    """Return the field that an error is about, as OpenAI (`param`) and servers that use pydantic (`loc`) name it; empty without one."""
    param, loc = error.get("param"), error.get("loc")
    if isinstance(param, str):
        return param
    if isinstance(loc, list):
        return ".".join(str(part) for part in loc)
    return ""


def token_count(value: object) -> int | None:
    """Return a count of tokens that a server gave; None where it is missing, negative, or too large to store."""
    if type(value) is int and 0 <= value <= MOST_TOKENS:
        return value
    return None
