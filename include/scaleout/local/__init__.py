"""A small cluster of real SSH hosts on this machine, for the demo and the tests. Not for measuring anything."""
