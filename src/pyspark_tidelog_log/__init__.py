"""Found by Spark itself, since its name begins with `pyspark_`: `format("tidelog-log")`."""
