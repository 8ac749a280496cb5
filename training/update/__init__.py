"""The forward pass of an update: rows packed without padding, a prompt once for all its rows, logits of counted tokens
alone."""
