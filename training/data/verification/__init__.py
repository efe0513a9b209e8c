"""Whether a data set still is what its manifest and the records of its shards say."""
