"""The metadata store on etcd, through etcd's JSON gateway."""
