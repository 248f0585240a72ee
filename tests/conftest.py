"""Settings for all tests: Hypothesis has no deadline, and signals are never ignored."""

import signal

from hypothesis import settings

settings.register_profile("tidelog", deadline=None)
settings.load_profile("tidelog")

# A shell starts background jobs with SIGINT ignored, and nohup ignores SIGHUP. The processes
# that tests start would inherit this, so set handlers.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
