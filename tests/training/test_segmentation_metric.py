import json
import math

import numpy as np
import pytest
import torch
from cityscapesscripts.evaluation import evalPixelLevelSemanticLabeling as official
from PIL import Image

from training.segmentation.labels import CLASS_NAMES, LABEL_IDS, TRAIN_IDS
from training.segmentation.metric import add_to_confusion, empty_confusion, mean_iou

CPU = torch.device("cpu")


def official_scores(folder, masks, predictions):
    """cityscapesScripts' own class scores (NaN where it does not count) and their mean."""
    ids = np.array(LABEL_IDS, np.uint8)
    truth_files, prediction_files = [], []
    for number, (mask, prediction) in enumerate(zip(masks, predictions, strict=True)):
        frame = f"aachen_{number:06}_000019"
        truth_files.append(str(folder / f"{frame}_gtFine_labelIds.png"))
        prediction_files.append(str(folder / f"{frame}_prediction.png"))
        Image.fromarray(mask).save(truth_files[-1])
        Image.fromarray(ids[prediction]).save(prediction_files[-1])
    settings = official.CArgs()
    vars(settings).update(vars(official.args))
    settings.evalInstLevelScore = False  # would want instanceIds too
    settings.quiet = True
    settings.exportFile = str(folder / "results" / "scores.json")
    official.evaluateImgLists(prediction_files, truth_files, settings)
    scores = json.loads((folder / "results" / "scores.json").read_text())
    return scores["classScores"], scores["averageScoreClasses"]


def our_scores(masks, predictions, batch=2):
    confusion = empty_confusion(CPU)
    for first in range(0, len(masks), batch):
        targets = torch.from_numpy(TRAIN_IDS[np.stack(masks[first : first + batch])])
        add_to_confusion(confusion, torch.from_numpy(np.stack(predictions[first : first + batch])), targets)
    return confusion, mean_iou(confusion)


@pytest.mark.parametrize("label_ids", [tuple(range(34)), (0, 3, 7, 8, 11, 29, 30, 33)])
def test_agrees_with_cityscapes_scripts(tmp_path, label_ids):
    """Random masks over all labels, then over few: classes that only the prediction has, or that nothing has."""
    random = np.random.default_rng(len(label_ids))
    masks, predictions = [], []
    for _ in range(5):
        mask = random.choice(np.array(label_ids, np.uint8), (40, 60))
        right = TRAIN_IDS[mask].astype(np.int64)
        guess = random.choice([0, 1, 2, 18, 16] if len(label_ids) < 34 else range(19), mask.shape)
        keep = (random.random(mask.shape) < 0.6) & (right != 255)
        masks.append(mask)
        predictions.append(np.where(keep, right, guess))
    if len(label_ids) < 34:
        predictions[0][masks[0] == 3] = 9  # terrain is predicted only where nothing counts
    expected, expected_mean = official_scores(tmp_path, masks, predictions)
    _, found = our_scores(masks, predictions)
    assert math.isclose(found.mean, expected_mean, abs_tol=1e-6)
    for name, iou in zip(CLASS_NAMES, found.per_class, strict=True):
        if iou is None:
            assert math.isnan(expected[name])
        else:
            assert math.isclose(iou, expected[name], abs_tol=1e-6)
    if len(label_ids) < 34:
        assert found.per_class[9] is None and found.per_class[5] is None and found.per_class[16] == 0


def test_rows_are_targets_and_ignored_pixels_do_not_count():
    confusion = empty_confusion(CPU)
    targets = torch.tensor([[[0, 0, 18, 255]]], dtype=torch.uint8)
    add_to_confusion(confusion, torch.tensor([[[0, 18, 18, 0]]]), targets)
    add_to_confusion(confusion, torch.tensor([[[0, 18, 18, 18]]]), targets)
    assert confusion.dtype == torch.int64 and confusion.sum() == 6
    assert (confusion[0, 0], confusion[0, 18], confusion[18, 18], confusion[18, 0]) == (2, 2, 2, 0)
    found = mean_iou(confusion)
    assert found.per_class[0] == 0.5 and found.per_class[18] == 0.5 and found.mean == 0.5
    assert found.per_class[1:18] == (None,) * 17


def test_nothing_counted_has_no_mean():
    confusion = empty_confusion(CPU)
    add_to_confusion(confusion, torch.zeros(1, 2, 2, dtype=torch.int64), torch.full((1, 2, 2), 255))
    assert mean_iou(confusion) == mean_iou(empty_confusion(CPU))
    assert mean_iou(confusion).mean is None and set(mean_iou(confusion).per_class) == {None}


def test_large_counts_stay_exact():
    confusion = torch.full((19, 19), 3**36, dtype=torch.int64)
    add_to_confusion(confusion, torch.zeros(1, 1, 1, dtype=torch.int64), torch.zeros(1, 1, 1, dtype=torch.int64))
    assert confusion[0, 0] == 3**36 + 1
