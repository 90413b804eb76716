"""The run-time check of annotations under tests; as in Python itself, an int will do for a float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
