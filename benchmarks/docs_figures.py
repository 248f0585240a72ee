"""Figures in the docs stand between two marks; a bench writes what is between them."""

BEGIN, END = "<!-- figures: written by the bench -->", "<!-- end of figures -->"


def with_figures(page: str, section: str) -> str:
    """The page with these figures, its prose as it was; ValueError if it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{section}{END}{after}"
