import numpy as np
import pytest
from cityscapesscripts.helpers.labels import id2label, name2label

from training.common.errors import UserError
from training.segmentation.labels import CLASS_COLORS, CLASS_NAMES, LABEL_IDS, TRAIN_IDS, check_ids


def test_the_table_maps_every_label_as_cityscapes_does():
    assert TRAIN_IDS.shape == (256,) and TRAIN_IDS.dtype == np.uint8
    for value in range(256):
        label = id2label.get(value)
        expected = label.trainId if label is not None else 255
        assert TRAIN_IDS[value] == expected
    assert sorted(set(TRAIN_IDS.tolist())) == [*range(19), 255]


def test_minus_one_is_ignored():
    assert TRAIN_IDS[np.array([-1], np.int16).astype(np.uint8)] == 255


def test_the_table_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        TRAIN_IDS[7] = 3


def test_names_colours_and_ids_follow_the_train_ids():
    assert len(CLASS_NAMES) == len(CLASS_COLORS) == len(LABEL_IDS) == 19
    assert (CLASS_NAMES[0], CLASS_NAMES[13], CLASS_NAMES[18]) == ("road", "car", "bicycle")
    for train_id, (name, color, label_id) in enumerate(zip(CLASS_NAMES, CLASS_COLORS, LABEL_IDS, strict=True)):
        assert (name2label[name].trainId, name2label[name].color, name2label[name].id) == (train_id, color, label_id)
        assert TRAIN_IDS[label_id] == train_id


def test_labels_of_cityscapes_pass():
    check_ids(np.array([*range(34), 255], np.uint8).reshape(5, 7), "a.png")
    check_ids(np.arange(-1, 34), "a.png")
    check_ids(np.zeros((0,), np.uint8), "a.png")


@pytest.mark.parametrize(("value", "dtype"), [(34, np.uint8), (254, np.uint8), (26003, np.int32), (-2, np.int16)])
def test_another_id_is_refused_by_file_and_value(value, dtype):
    mask = np.full((4, 4), 7, dtype)
    mask[2, 3] = value
    with pytest.raises(UserError, match=rf"^aachen_0_gtFine_labelIds.png: label id {value} is not one of Cityscapes"):
        check_ids(mask, "aachen_0_gtFine_labelIds.png")
