"""Environments of other packages: any Gymnasium environment with a cost as a pool."""
