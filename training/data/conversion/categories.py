"""The classes of Cityscapes with evaluated instances: label id to name and category (cityscapesscripts, labels.py).

Caravan (29) and trailer (30) have instances too, but are ignored in evaluation and therefore left out.
"""

CATEGORIES = {
    24: ("person", "human"),
    25: ("rider", "human"),
    26: ("car", "vehicle"),
    27: ("truck", "vehicle"),
    28: ("bus", "vehicle"),
    31: ("train", "vehicle"),
    32: ("motorcycle", "vehicle"),
    33: ("bicycle", "vehicle"),
}
