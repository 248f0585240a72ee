"""For all tests: no test asserts a time, and Ctrl-C works whoever starts them."""

import signal

from hypothesis import settings

settings.register_profile("tidelog", deadline=None)
settings.load_profile("tidelog")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background: what tests start would inherit it, and could not be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
