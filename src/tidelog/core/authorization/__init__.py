"""Who may do what: ACLs, the authoriser that decides by them, and the names of principals."""
