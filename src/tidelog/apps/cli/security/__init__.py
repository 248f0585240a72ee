"""Commands about users and access rights."""
