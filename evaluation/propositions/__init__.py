"""Propositions: the statements a judge scores for an agent, from YAML files that people own.

`schema` says what a file may hold (`rules` are its exact checks) and resolves it to `Proposition`; `files` reads the folders and says which
propositions an agent has of them; `traits` makes those of its persona. `entries` finds single propositions in their files, for people who
decide on them.
"""
