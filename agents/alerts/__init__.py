"""Alerts: what people have to know of, and its way to them.

`raising.raise_alert` writes a row, and one per receiver that asked for such alerts, in the transaction of its cause. Workers send them
(`delivery`) by e-mail, to webhooks (`webhook`) or to chat and paging services (`services`), again and again until it is answered or given
up; nothing else waits for that.
"""
