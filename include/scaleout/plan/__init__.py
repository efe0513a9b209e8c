"""Form over cluster over workload over presets: the ordered trials of a sweep, and the command of each."""
