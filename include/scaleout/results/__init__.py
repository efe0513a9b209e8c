"""The results folder of every sweep: the truth, in files."""
