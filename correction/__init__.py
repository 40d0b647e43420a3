"""Correcting what agents are about to say, and steering how they speak.

Its stages (`stages`, and those of `interventions` and `behavior`) take part in an agent's turn because `TURN_PIPELINE` names them. Before
the agent writes, it is shown its repeated phrases (`repetition`) and nudges (`interventions`); its draft then passes the `gate`, or goes
back with feedback. `behavior` changes a persona, or how one person is answered, where a person asks for it.

`config` says per agent what is on; `costs` sums what it costs, from the ledger. `sending` sends scores to OpenTelemetry and Langfuse, and
`litellm` opens the gate to replies that stream through LiteLLM.
"""
