"""The offline actor `offline:scripted-1`: it says the persona's own sample lines, one after the other.

A script, not a model: it understands nothing, and its replies say by whom they are (provider ``offline``). The same facts always give the
same answer, so that a demonstration or a test of the correction pipeline needs no key and can be repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.utils.module_loading import import_string

from agents.kit.capability import declared
from agents.kit.llm.requests import InvalidAnswer, LLMRequest

NO_LINES = "no sample lines: the scripted actor says only what an agent's sample lines hold, and this one has none"
ALL_REJECTED = "no sample line left: every one was sent back, and the scripted actor does not repeat a rejected line"
DONE = "(The scripted actor has said its line and ends the turn.)"


def answer(request: LLMRequest) -> dict[str, Any]:
    """Return what the script does in this step (responder for the task ``turn``).

    The request's `facts`, all but `agent` optional:

    * ``agent``: slug; with the number of lines said it decides where in the script to begin.
    * ``sample_lines``: the script.
    * ``lines``: what it says in this turn instead, the first that was not sent back; None = the script.
    * ``said``: texts the agent said recently in the channel, oldest first; said again only when all others were.
    * ``rejected``: texts sent back in this turn; never said again in it.
    * ``scene``: which scene it is, a number; else None.
    * ``sent``: whether something was said in this turn, which ends it.
    * ``answer``: fields of the typed answer that is asked for; with ``text`` among them that is said, whatever the script holds.
    * ``channel``: slug, given to tools that ask for a channel.
    * ``trigger``: the message it answers, for further tools of the turn (`turn_tools` of an app).

    Returns:
        ``text`` and ``tool_calls`` (``name``, ``input``): one `send_message`, one `do_nothing` (where no line is left), one of a further
        tool, or none at the end of the turn.

    Raises:
        InvalidAnswer: The request does not offer the tool that the script needs.
    """
    facts = request.facts
    if facts.get("sent"):
        return {"text": DONE, "tool_calls": []}
    answer = facts.get("answer", {})
    if "text" in answer:
        return _tool_call(request, "send_message", channel=facts.get("channel", ""), **answer)
    use_of_tool = _use_further_tool(request)
    if use_of_tool:
        return use_of_tool
    lines_of_turn = facts.get("lines")
    lines = _distinct(facts.get("sample_lines", ()) if lines_of_turn is None else lines_of_turn)
    if not lines:
        return _tool_call(request, "do_nothing", reason=NO_LINES)
    rejected = {_single_spaced(text) for text in facts.get("rejected", ())}
    line: str | None
    if lines_of_turn is None:
        said = facts.get("said", ())
        line = next_line(lines, agent=facts["agent"], said=said, rejected=rejected, scene=facts.get("scene"))
    else:
        line = next((candidate for candidate in lines if _single_spaced(candidate) not in rejected), None)
    if line is None:
        return _tool_call(request, "do_nothing", reason=ALL_REJECTED)
    return _tool_call(request, "send_message", text=line, channel=facts.get("channel", ""), **answer)


def _use_further_tool(request: LLMRequest) -> dict[str, Any] | None:
    """Say what a further tool of the turn answered; before, use the first whose class has something to ask for the message.

    Further tools are those in `turn_tools` of an app. No tool is used twice in a turn, nor after any other one.

    Returns:
        The call; None where there is nothing to say, and no tool is to be used.
    """
    further = declared("turn_tools")
    rejected = {_single_spaced(text) for text in request.facts.get("rejected", ())}
    name_of_call = {}
    for turn in request.turns:
        for call in turn.tool_calls:
            name_of_call[call.id] = call.name
        for result in turn.tool_results:
            can_be_said = not result.is_error and _single_spaced(result.text) not in rejected
            if can_be_said and name_of_call.get(result.call_id) in further:
                return _tool_call(request, "send_message", text=result.text, channel=request.facts.get("channel", ""))
    has_used_tools = bool(name_of_call)
    if has_used_tools:
        return None
    for tool in request.tools:
        if tool.name not in further:
            continue
        fields = import_string(further[tool.name]).scripted(request.facts.get("trigger", ""))
        if fields is not None:
            return _tool_call(request, tool.name, **fields)
    return None


def next_line(
    lines: Sequence[str], *, agent: str, said: Sequence[str], rejected: Collection[str], scene: int | None = None
) -> str | None:
    """Return the line to say now; None when every line was rejected. There must be at least one line.

    From a place that depends on the agent and on how much it has said, the first line that is new; when none is new, the one
    said longest ago. Lines that differ only in white space are the same. With a scene it begins that many lines further on, so that one
    scene after the other goes through all of the script.
    """
    number_said = len(said) if scene is None else 0
    lines_further_on = scene or 0
    start = (_stable_number(f"{agent}:{number_said}") + lines_further_on) % len(lines)
    rejected_texts = {_single_spaced(text) for text in rejected}
    allowed = [line for line in (*lines[start:], *lines[:start]) if _single_spaced(line) not in rejected_texts]
    last_said = {_single_spaced(text): index for index, text in enumerate(said)}
    # A line that was never said comes before all others; of several such lines `min` takes the first.
    return min(allowed, key=lambda line: last_said.get(_single_spaced(line), -1), default=None)


def _tool_call(request: LLMRequest, name: str, **arguments: Any) -> dict[str, Any]:
    """Return a call of one of the request's tools, with those of the arguments that it takes.

    Raises:
        InvalidAnswer: The request does not offer this tool.
    """
    tools = {tool.name: tool for tool in request.tools}
    if name not in tools:
        if "reason" in arguments:  # of `do_nothing`: why nothing can be said tells more than that the tool is missing
            raise InvalidAnswer(arguments["reason"])
        raise InvalidAnswer(f"the scripted actor needs the tool {name}; offered: {', '.join(tools) or 'none'}")
    properties: Mapping[str, Any] = tools[name].input_schema.get("properties", {})
    accepted = {argument: value for argument, value in arguments.items() if argument in properties}
    return {"text": "", "tool_calls": [{"name": name, "input": accepted}]}


def _distinct(lines: Sequence[str]) -> list[str]:
    """Return the lines without blank ones and repetitions, in their order."""
    distinct: dict[str, str] = {}
    for line in lines:
        if line.strip():
            distinct.setdefault(_single_spaced(line), line.strip())
    return list(distinct.values())


def _single_spaced(text: str) -> str:
    """Return a text with one space for any white space: lines that differ in nothing else are the same."""
    return " ".join(text.split())


def _stable_number(key: str) -> int:
    """Return a number for a key, the same in every process, which `hash` is not."""
    return int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:8])
