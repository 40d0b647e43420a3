"""Propositions: what is asked of the judge, as people write it in YAML files.

`schema` says what a file may hold and resolves its entries to `Proposition`s, `files` reads and merges them for one agent, `traits`
adds one per trait, `rules` checks a message without a model, `offline` answers from cues where there is no model at all.
"""
