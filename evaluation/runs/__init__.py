"""Evaluations. `request` is what is asked for; commands, pages and routes are made from it. `spec` is the same as a value, and `planning`
makes a run of it: with a pending row for each judgement, or the unfinished one to resume.

`execute` leases runs and judges them side by side: now (`capture`) or when a worker's turn comes (`work_one`). `judging` asks about one
dimension and stores the answers (`ideas` counts ideas, `batches` asks in Message Batches). `failures` tells calls that failed from answers.
`ending` stores how a judged run ended, and what follows.

`summary` sums up the judgements as `numbers`, which commands print and the API returns, each with its `shares`: how much was scored.
`estimate` says before what they would cost; `control` queues, cancels and resumes; `simulating` has speech simulated first where that is
what is measured.
"""
