"""Ways to empty the cache of a NAS, one class each."""
