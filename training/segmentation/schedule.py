"""The learning rate's factor as a function of the epoch: the schedules of NVIDIA's semantic-segmentation program."""

from __future__ import annotations

from training.segmentation.args import Options


def factor(options: Options, epoch: int) -> float:
    """Of the rate, in `epoch` (from 0). It is 0 from the last epoch on: a trial bounded by steps or seconds may train longer.

    poly is (1 - epoch / epochs) ** poly_exp (DeepLab, Chen et al. 2016, section 4.1, per epoch instead of iteration);
    poly2 doubles the exponent from `poly_step` on; scl-poly begins anew at `rlx_off_epoch`, at `rescale` times the rate
    and with the exponent `repoly`.
    """
    if options.lr_schedule == "poly2" and epoch >= options.poly_step:
        return _poly(epoch, options.epochs, 2 * options.poly_exp)
    anew = options.rlx_off_epoch
    if options.lr_schedule == "scl-poly" and epoch >= anew:
        return options.rescale * _poly(epoch - anew, options.epochs - anew, options.repoly)
    return _poly(epoch, options.epochs, options.poly_exp)


def _poly(epoch: int, epochs: int, exponent: float) -> float:
    return (1 - epoch / epochs) ** exponent if epoch < epochs else 0.0
