"""What classes are called."""

from idml.evaluation.embedded import Embedded


def class_name(embedded: Embedded, label: int) -> str:
    """The name of a class, or its number where it has none."""
    names = embedded.class_names or []
    return names[label] if 0 <= label < len(names) else f"class {label}"


def shortened(name: str, longest: int) -> str:
    """
    >>> shortened("Black-footed Albatross", 12)
    'Black-foote…'
    """
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
