"""Figures in the docs are between two marks; a benchmark replaces the text between them."""

BEGIN, END = "<!-- figures: written by the bench -->", "<!-- end of figures -->"


def with_figures(page: str, section: str) -> str:
    """Return the page with these figures; ValueError if the page has no marks for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{section}{END}{after}"
