"""Requests of people that an agent behave differently: detected in what they write, decided by rules, applied visibly and reversibly.

`tiers` asks a judge (offline: `patterns`), `rules` maps the answer to a trait and decides, `applying` applies and reverts, `effects`
measures what changed (`before_after` judges one trait around a change), `work` and `description` are what workers do.
"""
