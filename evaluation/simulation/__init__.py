"""Synthetic conversations that measure an agent before it has talked to anyone (AC-6.5.2).

`situations` reads what is said to the agent; `conversations` says it, line by line, in channels marked synthetic, and makes a `RunSpec` of
the answers, here or for evaluations that wait for a worker. What that would cost says `evaluation.runs.estimate`.
"""
