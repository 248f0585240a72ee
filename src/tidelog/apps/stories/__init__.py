"""Stories and lessons as data, for the command line and the web console."""
