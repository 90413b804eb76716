"""Many runs compared: the arms of a search, a log that survives crashes, and the table that comes out."""
