"""`python -m idml` is the command `idml`."""

from idml.cli.app import main

if __name__ == "__main__":
    main()
