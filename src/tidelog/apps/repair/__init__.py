"""`tidelog repair`: check the folder of a stopped broker, and mend it from another one."""
