from agents.kit import capability


class CalibrationConfig(capability.Capability):
    name = "evaluation.calibration"
    verbose_name = "Trust in judges"
    judge_badges = ["evaluation.calibration.admin.trust.badges_of"]
    summary_parts = ["evaluation.calibration.agreement.with_trust"]
    job_kinds = {"judge_check": "evaluation.calibration.jobs.conclude"}
    work_queues = {"calibration": "evaluation.calibration.agreement.work_one"}
