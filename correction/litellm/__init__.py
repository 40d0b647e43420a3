"""The gate for replies that stream through LiteLLM: its generic guardrail API, answered by the gate's own checks.

LiteLLM posts a round before a call (`rounds` stores what was said before) and rounds with the reply so far. Each round's new sentences
are judged as the beginning of a message (`checking`); what passed is returned, a sentence that failed is written again (`rewriting`). A
reply that got no round for a while is over: `ending` stores the conversation and the verdicts.
"""
