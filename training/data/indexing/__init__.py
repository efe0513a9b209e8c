"""COCO annotations as arrays that any number of processes map at once."""
