"""Benchmarks, one module a question: ours beside a peer, in one process tree and the same minutes.

``python -m benchmarks.NAME --json FILE`` prints a table and writes the numbers with the machine and the versions.
"""
