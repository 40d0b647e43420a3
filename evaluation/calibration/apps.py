from agents.kit import capability


class CalibrationConfig(capability.Capability):
    name = "evaluation.calibration"
    verbose_name = "Trust in judges"
    work_queues = {"calibration": "evaluation.calibration.agreement.work_one"}
