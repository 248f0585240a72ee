"""The commands of stories: each file has one dict from command name to command."""
