"""Requests of people that an agent behave differently: detected in what they write, decided by rules, applied visibly and reversibly.

`tiers` asks a judge, `trait_change` reads the answer as a change of a trait, `policy` decides, `applying` applies and reverts, `effects`
measures what changed (`before_after` judges one trait around a change), `work` and `description` are what workers do.

Without a model `offline` answers, by what `patterns` parses: `languages` has the words that it reads, `naming` finds and names the topic.
"""
