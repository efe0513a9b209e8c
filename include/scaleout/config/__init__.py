"""The models behind what a user edits and types: clusters, workloads, presets, the trigger form."""
