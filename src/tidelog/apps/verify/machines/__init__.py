"""Machines of `tidelog verify --machines`: network namespaces with etcd and brokers."""
