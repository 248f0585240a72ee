"""Text output of commands: tables, bars, lines. The data comes from `apps/views` and the lab."""
