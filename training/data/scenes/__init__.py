"""Generated street scenes: composed, painted, written."""
