"""`python -m tidelog` is the `tidelog` command."""

from tidelog.apps.cli.launch import main

if __name__ == "__main__":  # the simulator's worker processes import this module too
    main()
