"""Doors to the frameworks that people already use: each file meets one package, and is imported only by who has it."""
