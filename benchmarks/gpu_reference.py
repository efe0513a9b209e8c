"""Steps of NVIDIA's public programs, made of their own modules, for benchmarks/gpu_steps.py. No line of theirs is here.

DIR holds checkouts: DIR/ssd is PyTorch/Detection/SSD of NVIDIA/DeepLearningExamples, DIR/segmentation is the main branch
of NVIDIA/semantic-segmentation. What they import and a single process does not need (apex, runx) is stood in for, and
nothing is downloaded: weights are random. Where they use apex' mixed precision, torch's stands in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torchvision
from torch import nn

from training.common.step import Inputs
from training.ssd.boxes import default_boxes

Run = Callable[[int, bool], None]
"""Makes so many steps; with True, the host reads the loss after each."""


def ssd(folder: Path, classes: int, inputs: Inputs) -> Run:
    """The reference's own `train_loop`, with its defaults: fp16, images in channels last, its loss and its SGD."""
    sys.path.insert(0, str(folder / "ssd"))
    _stand_in("apex", amp=None)
    with_weights = torchvision.models.resnet.resnet50
    torchvision.models.resnet.resnet50 = lambda **_: with_weights()
    from ssd.model import SSD300, Loss, ResNet
    from ssd.train import tencent_trick, train_loop
    from ssd.utils import dboxes300_coco

    model = SSD300(ResNet("resnet50"))
    torchvision.models.resnet.resnet50 = with_weights
    model.label_num = classes  # it is made for COCO's 81
    model.conf = nn.ModuleList(
        nn.Conv2d(head.in_channels, head.out_channels // 81 * classes, 3, padding=1) for head in model.conf
    )
    model, loss = model.cuda(), Loss(dboxes300_coco()).cuda()
    optimizer = torch.optim.SGD(tencent_trick(model), lr=0.0, momentum=0.9, weight_decay=5e-4)
    scaler = torch.amp.GradScaler("cuda")
    images, _, labels = inputs
    boxes = default_boxes().to(images.device).repeat(len(images), 1)
    batch = [[[images], [boxes], [labels.flatten()], [torch.ones(1, dtype=torch.int32)]]]
    mean, std = torch.zeros(1, 3, 1, 1, device=images.device), torch.ones(1, 3, 1, 1, device=images.device)
    logger = SimpleNamespace(update_iter=lambda *_: None)

    def run(steps: int, read: bool) -> None:
        # of its ranks, only the first reads the loss
        args = SimpleNamespace(
            no_cuda=False, amp=True, data_layout="channels_last", warmup=None, local_rank=0 if read else 1
        )
        train_loop(model, loss, scaler, 0, optimizer, [batch] * steps, None, None, 0, logger, args, mean, std)

    return run


def segmentation(folder: Path, classes: int, inputs: Inputs) -> Run:
    """The reference's network, criterion and SGD in the order of its `train`, with torch's fp16 for apex'."""
    sys.path.insert(0, str(folder / "segmentation"))
    _stand_in("apex", amp=SimpleNamespace(float_function=lambda function: function))
    _stand_in("apex.parallel", SyncBatchNorm=nn.SyncBatchNorm)
    _stand_in("runx")
    _stand_in("runx.logx", logx=SimpleNamespace(msg=lambda _: None))
    from config import cfg

    cfg.MODEL.BNFUNC, cfg.DATASET.NUM_CLASSES = nn.BatchNorm2d, classes
    import network.utils
    from loss.optimizer import get_optimizer
    from loss.utils import CrossEntropyLoss2d
    from network.deepv3 import DeepV3PlusW38

    with_weights = network.utils.wrn38
    network.utils.wrn38 = lambda **_: with_weights(pretrained=False)
    net = DeepV3PlusW38(classes, CrossEntropyLoss2d().cuda()).cuda()
    args = SimpleNamespace(
        optimizer="sgd", lr=0.0, weight_decay=1e-4, momentum=0.9, lr_schedule="poly", max_epoch=180, poly_exp=1.0
    )
    optimizer, _ = get_optimizer(args, net)
    scaler = torch.amp.GradScaler("cuda")
    images, targets = inputs
    batch = {"images": images, "gts": targets.long()}

    def run(steps: int, read: bool) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = net(batch)
            if read:
                loss.item()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return run


def _stand_in(name: str, **contents: Any) -> None:
    module = ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
