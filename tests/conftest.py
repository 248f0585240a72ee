"""For all tests: no test asserts a time, and signals work whoever starts them."""

import signal

from hypothesis import settings

settings.register_profile("tidelog", deadline=None)
settings.load_profile("tidelog")

# Where tests run in the background, what they start would inherit that signals are ignored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
