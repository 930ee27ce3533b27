"""Inputs from outside are hostile: no code runs, no path leaves its folder, and every refusal is one sentence."""
