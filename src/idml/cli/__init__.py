"""The command `idml`: one file a subcommand, and what they share."""
