"""Pure functions from what trials left to what they mean: rates, evidence, bandwidth, scaling."""
