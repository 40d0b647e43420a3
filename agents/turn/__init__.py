"""An agent's turn: what it is shown, the tools it may use, and the stages its words pass before they are said (docs/adr/0001-layers.md).

`receive` stores a person's message and queues the turns of the agents that it addresses. `orchestrator` takes a turn: the stages of
`pipeline` prepare it, `prompt` writes what the model is shown, and `tools` carries out what it asks for. `send_message` passes a draft
through the stages that review it, and commits what passes; `timeline` shows afterwards what happened.
"""
