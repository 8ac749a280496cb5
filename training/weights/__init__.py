"""How the trainer's weights get to an engine that holds its own, and the proof that they did."""
