"""Inflation: from a base set to a set of the size that a benchmark needs, of seeded variants of each frame."""
