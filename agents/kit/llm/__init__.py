"""Calling a model: `complete`, `complete_many`, `complete_together`, and the values that go in and come out.

A request (`requests`) goes through `runtime`, which waits for it, to the thread of `loop`; there `asking` puts it to the provider that
`endpoints` names, and the reply is noted in the `ledger` with its price. A call that fails is a reply, too.
"""

from agents.kit.llm.requests import (
    Block,
    InvalidAnswer,
    Label,
    LLMRequest,
    Reply,
    Role,
    Status,
    Tool,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
    estimate_tokens,
    request_digest,
)
from agents.kit.llm.runtime import complete, complete_guarded, complete_many, complete_together, warm_up

__all__ = [
    "Block",
    "InvalidAnswer",
    "LLMRequest",
    "Label",
    "Reply",
    "Role",
    "Status",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Turn",
    "Usage",
    "complete",
    "complete_guarded",
    "complete_many",
    "complete_together",
    "estimate_tokens",
    "request_digest",
    "warm_up",
]
