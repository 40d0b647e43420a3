from agents.kit import capability


class CalibrationConfig(capability.Capability):
    name = "evaluation.calibration"
    verbose_name = "Trust in judges"
    judge_badges = ["evaluation.calibration.admin.trust.passport_badges"]
    summary_parts = ["evaluation.calibration.passport.with_passports"]
    evaluation_ended = ["evaluation.calibration.stored.follow_evaluation"]
    job_kinds = {"judge_check": "evaluation.calibration.jobs.conclude"}
    work_queues = {"calibration": "evaluation.calibration.stored.work_one"}
