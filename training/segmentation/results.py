"""What an evaluation found, told to people, to the event log and in the JSON stream."""

from __future__ import annotations

from training.common.program import Write
from training.common.report import Report, three_digits
from training.segmentation.evaluate import Result
from training.wire.events import Evaluation


def tell(result: Result, epoch: int, write: Write, report: Report) -> None:
    """An evaluation of the weights after `epoch` (counted from 0)."""
    write(
        Evaluation(
            epoch=epoch,
            images=result.images,
            detections=None,
            seconds=result.seconds,
            metrics={"mIoU": result.mean_iou, "pixel_accuracy": result.pixel_accuracy, "loss": result.loss},
            per_class=result.class_iou,
        )
    )
    if result.mean_iou is None:
        report.say(f"epoch {epoch}: no mIoU: no pixel of the {result.images} validation images counts")
        return
    report.say(
        f"epoch {epoch}: mIoU {three_digits(result.mean_iou)}, "
        f"pixel accuracy {three_digits(result.pixel_accuracy)}, loss {three_digits(result.loss)} "
        f"on {result.images} images, {result.seconds:.1f} s"
    )
    report.say(", ".join(f"{name} {three_digits(value)}" for name, value in result.class_iou.items()))
    report.log([epoch], {"mIoU": result.mean_iou})
