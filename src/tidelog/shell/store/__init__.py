"""The metadata store on one SQLite file shared by the brokers of a machine, and their locks."""
