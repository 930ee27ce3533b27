"""Policies and critics: networks, what their outputs mean, and the statistics of what they see."""
