"""`python -m volumetry` is the command line."""

from volumetry.cli import main

if __name__ == "__main__":
    main()
