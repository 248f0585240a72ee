"""Why a cluster is not started: one line that says what to do next."""


class Refusal(Exception):
    """Nothing was touched. The text is one line for whoever typed the command."""


class WrongSetting(Refusal):
    """It is what was typed that is wrong, not the machine."""
