"""Why a cluster is not started or not found: one line that says what to do next."""


class Refusal(Exception):
    """Nothing was touched. The text is one line for whoever typed the command."""
