"""Cityscapes to COCO: reads the folders and the truth of frames, writes annotations."""
