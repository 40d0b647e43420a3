"""Synthetic conversations that measure an agent before it has talked to anyone (AC-6.5.2).

`situations` reads what is said to the agent; `conversations` says it, line by line, in channels marked synthetic.
How the answers are measured says `evaluation.runs.simulating`, and what that would cost `evaluation.runs.estimate`.
"""
