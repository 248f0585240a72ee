"""OAUTHBEARER's way to the identity provider: the keys that check tokens, and own tokens."""
