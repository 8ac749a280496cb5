"""callwright: train, serve and evaluate language models that use tools.

The rooms stand at the repository's top level and are linked here: the import name is always ``callwright.ROOM``.
"""
