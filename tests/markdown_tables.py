"""Tables in Markdown, read."""


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each table, its headings first."""
    found: list[list[list[str]]] = []
    was_table = False
    for each in text.splitlines():
        is_table = each.startswith("| ")
        if is_table and not was_table:
            found.append([])
        if is_table and not each.startswith("| ---"):
            found[-1].append(each.strip("| ").split(" | "))
        was_table = is_table
    return found
