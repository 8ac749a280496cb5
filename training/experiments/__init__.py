"""Experiments on the reward queue: a grid of configs, trained or re-scored, and one report. None of it needs torch."""
