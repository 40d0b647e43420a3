"""Requests of people that an agent behave differently: detected in what they write, decided by rules, applied visibly and reversibly.

`tiers` asks a judge (offline: `offline`, by what `patterns` parses), `trait_change` reads the answer as a change of a trait, `policy`
decides, `applying` applies and reverts, `effects` measures what changed (`before_after` judges one trait around a change), `work` and
`description` are what workers do.
"""
