"""``callwright doctor``: each part of a set-up tried once, with its time, and the mend where it fails."""
