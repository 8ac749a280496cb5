"""``python -m callwright VERB``: the same command line as ``callwright VERB``."""

from callwright.scripts.cli import main

if __name__ == "__main__":
    main()
