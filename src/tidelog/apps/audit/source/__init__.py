"""`format("tidelog-log")`: the files of log directories as rows."""
