"""The sections of a config: frozen models, every key with its type, default and one line of meaning."""
