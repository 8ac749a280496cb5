"""A run's curves and rollouts as one page in a browser. Nothing here loads torch."""
