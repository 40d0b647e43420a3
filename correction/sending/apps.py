from agents.kit import capability


class SendingConfig(capability.Capability):
    name = "correction.sending"
    verbose_name = "Scores out"
    work_queues = {"scores": "correction.sending.delivery.work_one"}
    metrics_collectors = ["correction.sending.delivery.collect"]
    # Called with what was stored, in its transaction.
    judgement_observers = ["correction.sending.queueing.queue_judgements"]
    change_observers = ["correction.sending.queueing.queue_changes"]
    attempt_observers = ["correction.sending.queueing.queue_attempt"]
