"""What runs on a node beside the ranks. Standard library, psutil and NVML only.

`lock`, `preflight`, `caches`, `network` and `processes` are sent to the node's Python over standard input before any
release is there: each is one file that imports nothing of ours.
"""
