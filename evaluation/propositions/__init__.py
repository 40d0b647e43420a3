"""Propositions: what is asked of the judge, as people write it in YAML files.

`schema` says what a file may hold, checks exact rules and resolves entries to `Proposition`s; `files` reads and merges them for one
agent and adds one per trait. `evaluation.judge.offline` answers from their cues where there is no model; `evaluation.drafting` changes
files.
"""
