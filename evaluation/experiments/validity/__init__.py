"""Measure Plumbline on data of others and in simulations, beside what was published or is promised: ``manage.py dev validity``.

Each module returns rows (`rows`): `judges` checks published validations of a judge, `table_one` a published experiment, `simulations` what
our intervals and tests promise, `voices` the offline voice on the text of people, `drift` a judge on published drifts. `command` prints
them as one table. Nothing here is used by the product; what it is measured with is.
"""
