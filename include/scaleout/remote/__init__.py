"""The orchestrator's side of the wire: SSH fan-out, releases, the gang protocol, the cluster lock."""
