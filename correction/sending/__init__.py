"""Scores out: each judgement, verdict of the gate and change leaves for OpenTelemetry and Langfuse, where these are configured.

`queueing` writes a row per receiver in the transaction that stores a result. Workers read the results (`records`) and send them
(`delivery`) as OpenTelemetry's logs (`otlp`) or as scores of Langfuse (`langfuse`), again and again until they are taken or given up.
"""
