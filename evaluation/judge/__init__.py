"""The judge: what it is asked, and how its answers are read.

`prompts` writes what it is shown, `questions` puts propositions that share a context into one call, and `verdicts` reads the answers.
`asking` asks many questions at once; `checks` asks whether one claim is true.

`offline` answers where there is no model at all. `identity` says who a judge really is, and `passport` how far it can be trusted.
"""
