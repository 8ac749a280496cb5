"""What ``benchmarks.update_vs_trl`` is made of."""
