"""What an evaluation found, told to people, to the event log and in the JSON stream."""

from __future__ import annotations

from training.common.program import Write
from training.common.report import Report, three_digits
from training.ssd.evaluate import Result
from training.wire.events import Evaluation


def tell(result: Result, epoch: int, write: Write, report: Report) -> None:
    """An evaluation of the weights after `epoch` (counted from 0)."""
    write(
        Evaluation(
            epoch=epoch,
            images=result.images,
            detections=result.detections,
            seconds=result.seconds,
            metrics=result.metrics,
            per_class=result.class_ap,
        )
    )
    if result.reason:
        report.say(f"epoch {epoch}: no mAP: {result.reason}")
        return
    shown = ("AP", "AP50", "AP75")
    report.say(
        f"epoch {epoch}: {', '.join(f'{name} {three_digits(result.metrics[name])}' for name in shown)} "
        f"on {result.images} images, {result.detections} detections, {result.seconds:.1f} s"
    )
    report.say(", ".join(f"{name} {three_digits(value)}" for name, value in result.class_ap.items()))
    if result.unknown_classes:
        report.say(f"never trained on and counted as 0: {', '.join(result.unknown_classes)}")
    report.log([epoch], {"mAP": result.metrics["AP"]})
