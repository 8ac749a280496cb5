"""Token scripts, and the two sides that replay them: TRL's tool loop and our rollout function."""
