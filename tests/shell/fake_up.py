"""The `tidelog` command with fake brokers: `python fake_up.py up ...`."""

from tidelog.apps.cli.launch import main
from tidelog.shell.supervisor import broker_child

if __name__ == "__main__":
    broker_child.ENTRY = "fake_brokers:run_brokers"
    main()
