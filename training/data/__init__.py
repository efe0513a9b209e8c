"""Data sets: Cityscapes-format scenes (generate.py) and their conversion to the COCO layout (convert.py)."""
