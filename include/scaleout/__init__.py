"""Measures how deep-learning training scales on a GPU cluster with a shared NAS."""
